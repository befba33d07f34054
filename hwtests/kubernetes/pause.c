/* Holds a pod's namespaces: waits to be stopped, and reaps what is left to it. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void stopped(int signal) {
    (void)signal;
    _exit(0);
}

static void child(int signal) {
    (void)signal;
    while (waitpid(-1, 0, WNOHANG) > 0) {
    }
}

int main(void) {
    signal(SIGTERM, stopped);
    signal(SIGINT, stopped);
    signal(SIGCHLD, child);
    for (;;) pause();
}
