/* A model in a program's own event loop: numbers come on standard input, one a line; each goes through the plan, and comes
 * out as a line. Nothing here waits but epoll_wait(), without a time limit.
 *
 *     printf '1\n2\n3\n' | event_loop
 *     event_loop <numbers
 *
 * Standard input may be a pipe, a terminal or a socket, which epoll watches, or a file. epoll takes no files, as these can
 * always be read; the loop then looks at the session alone, and reads. While the plan has no room standard input is left
 * alone: whoever writes to it waits, in turn. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <weir/weir.h>

static weir_session *session;
static int loop;
static char text[4096]; /* read, and not pushed yet */
static size_t used;
static bool has_room, listens, is_file, ended, wrong, over;
static int line, pushed, pulled;

/* Ends the input, because of what errno says. */
static void input_failed(void)
{
    fprintf(stderr, "event_loop: standard input cannot be read: %s\n", strerror(errno));
    ended = wrong = true;
}

static void listen_to_input(bool on)
{
    if (on == listens || is_file)
        return;
    listens = !epoll_ctl(loop, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, STDIN_FILENO,
                         &(struct epoll_event){EPOLLIN, {.fd = STDIN_FILENO}}) && on;
    is_file = on && !listens && errno == EPERM;
    if (on && !listens && !is_file)
        input_failed();
}

/* There is no whole line in the text, and room for more of one. The last one may lack its end. */
static void read_input(void)
{
    ssize_t count = read(STDIN_FILENO, text + used, sizeof text - used);
    if (count < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (count < 0)
        input_failed();
    ended |= count <= 0;
    used += count > 0 ? (size_t)count : 0;
    if (ended && used)
        text[used++] = '\n';
    if (used == sizeof text && !memchr(text, '\n', used)) {
        fprintf(stderr, "event_loop: line %d is too long\n", line + 1);
        ended = wrong = true;
        used = 0;
    }
}

/* Whether a line begins with a number; else it is skipped. */
static bool read_number(float *x)
{
    char *end;
    *x = strtof(text, &end);
    if (end != text)
        return true;
    fprintf(stderr, "event_loop: line %d is no number\n", line + 1);
    return !(wrong = true);
}

/* Pushes whole lines as long as there is room. */
static void push_lines(void)
{
    for (char *end; has_room && (end = memchr(text, '\n', used)) != NULL;) {
        float x;
        bool number = read_number(&x);
        has_room = !number || !weir_session_push(session, "x", WEIR_ARRAY(&x, WEIR_F32), 0);
        if (!has_room)
            return;
        line++;
        pushed += number;
        used -= (size_t)(end + 1 - text);
        memmove(text, end + 1, used);
    }
}

static void pull_lines(void)
{
    float y;
    while (!weir_session_pull(session, "y", WEIR_ARRAY(&y, WEIR_F32), 0)) {
        printf("%g\n", (double)y);
        pulled++;
    }
    fflush(stdout);
}

static void ask_session(void)
{
    weir_ready ready[8];
    int count = weir_session_ready(session, ready, 8);
    for (int i = 0; i < count && i < 8; i++) {
        over |= ready[i].kind == WEIR_READY_WAIT; /* the run has failed */
        has_room |= ready[i].kind == WEIR_READY_PUSH && !ready[i].status;
        if (ready[i].kind == WEIR_READY_PULL)
            pull_lines();
    }
}

int main(void)
{
    if (fcntl(STDIN_FILENO, F_GETFD) < 0 && open("/dev/null", O_RDONLY) < 0) /* closed: its number is not another's */
        return 1;
    weir_graph *g = weir_graph_new("line");
    weir_fetch(weir_affine(weir_input(g, WEIR_F32, {0}, .name = "x"), 3, .shift = 0.5), .name = "y");
    weir_plan *plan = weir_compile(g);
    session = plan ? weir_session_open(plan, .stall_s = -1) : NULL;
    int fd = session ? weir_session_fd(session) : -1;
    loop = epoll_create1(EPOLL_CLOEXEC);
    bool failed = fd < 0 || loop < 0 || epoll_ctl(loop, EPOLL_CTL_ADD, fd, &(struct epoll_event){EPOLLIN, {.fd = fd}}) ||
                  weir_session_start(session, 1000000000); /* until it is closed */
    while (!failed && !over) {
        struct epoll_event event;
        bool reads = !ended && has_room;
        listen_to_input(reads);
        if (ended && !used && pushed == pulled)
            break;
        int count = epoll_wait(loop, &event, 1, reads && is_file ? 0 : -1);
        if (count > 0 && event.data.fd == fd)
            ask_session();
        if (reads && (is_file || (count > 0 && event.data.fd != fd)))
            read_input();
        push_lines();
    }
    failed |= over && weir_session_wait(session, 0);
    if (failed)
        puts(weir_error());
    failed |= fflush(stdout) || ferror(stdout);
    weir_session_close(session);
    weir_plan_free(plan);
    weir_graph_free(g);
    return failed || wrong;
}
