/* server.c: a server that answers with a model. Each line that a client sends is a number x; the answer is 3 x + 0.5.
 *
 *     server SOCKET [PLAN]     listens at this path; a line "quit" ends it. Saves the plan for other programs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <weir/weir.h>

static int listen_at(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return -1;
    strcpy(address.sun_path, path);
    unlink(path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd >= 0 && (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 8))) {
        close(fd);
        return -1;
    }
    return fd;
}

/* One value in, one value out. A second of silence is an error here: the model takes microseconds. */
static weir_status answer(weir_session *s, float x, float *y)
{
    weir_status status = weir_session_push(s, "x", WEIR_ARRAY(&x, WEIR_F32), 1000);
    return status ? status : weir_session_pull(s, "y", WEIR_ARRAY(y, WEIR_F32), 1000);
}

/* Answers the lines of one client. Whether it was the last: it said so, or the session has failed. */
static bool serve(weir_session *s, int fd, FILE *client)
{
    char line[64];
    float y;
    while (fgets(line, sizeof line, client)) {
        if (!strcmp(line, "quit\n"))
            return true;
        weir_status status = answer(s, strtof(line, NULL), &y);
        if (status)
            return dprintf(fd, "%s: %s\n", weir_status_name(status), weir_error()), true;
        dprintf(fd, "%g\n", (double)y);
    }
    return false;
}

static void serve_all(weir_session *s, int listener)
{
    for (bool last = false; !last;) {
        int fd = accept(listener, NULL, NULL);
        FILE *client = fd >= 0 ? fdopen(fd, "r") : NULL;
        if (!client)
            break;
        last = serve(s, fd, client);
        fclose(client);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return fputs("usage: server SOCKET [PLAN]\n", stderr), 2;
    weir_graph *g = weir_graph_new("server");
    weir_tensor *x = weir_input(g, WEIR_F32, {0}, .name = "x");
    weir_fetch(weir_affine(x, 3, .shift = 0.5), .name = "y");
    weir_plan *plan = weir_compile(g);
    weir_session *s = plan && (argc < 3 || !weir_plan_save(plan, argv[2])) ? weir_session_open(plan, .stall_s = -1) : NULL;
    int listener = s ? listen_at(argv[1]) : -1;
    bool failed = !s || listener < 0 || weir_session_start(s, INT64_MAX / 2);
    if (failed)
        fprintf(stderr, "server: %s\n", s && listener < 0 ? argv[1] : weir_error());
    else
        serve_all(s, listener);
    if (listener >= 0)
        close(listener);
    weir_session_close(s); /* also ends the run */
    weir_plan_free(plan);
    weir_graph_free(g);
    return failed;
}
