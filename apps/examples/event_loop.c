/* A model in a program's own event loop: numbers come on standard input, one a line, which may be a pipe, a terminal or a
 * socket; each goes through the plan, and comes out as a line. Nothing here waits but epoll_wait(), without a time limit.
 *
 *     printf '1\n2\n3\n' | event_loop
 *
 * While the plan has no room standard input is left alone: whoever writes to it waits, in turn. */
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
static bool has_room, listens, ended, over;
static int pushed, pulled;

static void listen_to_input(bool on)
{
    if (on != listens && epoll_ctl(loop, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, STDIN_FILENO,
                                   &(struct epoll_event){EPOLLIN, {.fd = STDIN_FILENO}}))
        ended = true; /* a file: epoll has no use for it */
    listens = on;
}

static void read_input(void)
{
    ssize_t count = read(STDIN_FILENO, text + used, sizeof text - used);
    ended = count <= 0;
    used += count > 0 ? (size_t)count : 0;
}

/* Pushes whole lines as long as there is room. */
static void push_lines(void)
{
    for (char *end; has_room && (end = memchr(text, '\n', used)) != NULL;) {
        float x = strtof(text, NULL);
        has_room = !weir_session_push(session, "x", WEIR_ARRAY(&x, WEIR_F32), 0);
        if (!has_room)
            return;
        pushed++;
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
    weir_graph *g = weir_graph_new("line");
    weir_fetch(weir_affine(weir_input(g, WEIR_F32, {0}, .name = "x"), 3, .shift = 0.5), .name = "y");
    weir_plan *plan = weir_compile(g);
    session = plan ? weir_session_open(plan) : NULL;
    int fd = session ? weir_session_fd(session) : -1;
    loop = epoll_create1(EPOLL_CLOEXEC);
    bool failed = fd < 0 || loop < 0 || epoll_ctl(loop, EPOLL_CTL_ADD, fd, &(struct epoll_event){EPOLLIN, {.fd = fd}}) ||
                  weir_session_start(session, 1000000000); /* until it is closed */
    while (!failed && !over) {
        struct epoll_event event;
        listen_to_input(!ended && has_room);
        if (ended && pushed == pulled)
            break;
        if (epoll_wait(loop, &event, 1, -1) < 1)
            continue;
        if (event.data.fd == fd)
            ask_session();
        else
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
    return failed;
}
