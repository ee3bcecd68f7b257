// The process of a pod's sandbox: holds the pod's namespaces, reaps what its containers leave behind, ends when told to.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void reap(int number) {
  (void)number;
  while (waitpid(-1, 0, WNOHANG) > 0) {
  }
}

static void end(int number) {
  (void)number;
  _exit(0);
}

int main(void) {
  struct sigaction on_child = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP | SA_RESTART};
  struct sigaction on_end = {.sa_handler = end};
  if (sigaction(SIGCHLD, &on_child, 0) || sigaction(SIGTERM, &on_end, 0) || sigaction(SIGINT, &on_end, 0)) return 1;
  for (;;) pause();
}
