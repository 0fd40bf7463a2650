/*
 * The only program of the image that has nothing else: no shell, no libc files. Tests use it to look at the world as an agent sees it.
 *
 *   probe args A B…           one argument a line
 *   probe cat                 standard input to standard output
 *   probe err TEXT            TEXT to standard error
 *   probe exit CODE           ends with CODE
 *   probe sleep SECONDS       ends at once on SIGTERM with 143
 *   probe env NAME            value of a variable; 1 when unset
 *   probe read FILE           a file's content; 1 when it cannot be read
 *   probe write FILE TEXT     makes FILE; 1 when it cannot
 *   probe id                  uid:gid
 *   probe tty                 rows and columns of the terminal; 1 when there is none
 *   probe connect IP PORT MS  0 when TCP connects within MS, 3 when not: no code that anything else ends with
 *   probe watch FILE SECONDS IP PORT…  tries each target over and over and appends a line to FILE for each that connects, from its very
 *                             first instruction on; "started" is the first line, "done" the last
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int copy(int from, int to) {
  char buffer[65536];
  ssize_t got;
  while ((got = read(from, buffer, sizeof buffer)) > 0)
    for (ssize_t at = 0; at < got;) {
      ssize_t put = write(to, buffer + at, got - at);
      if (put < 0) return 1;
      at += put;
    }
  return got < 0;
}

static int connects(const char *ip, const char *port, int ms) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
  if (inet_pton(AF_INET, ip, &address.sin_addr) != 1) return 0;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return 0;
  int result = 0, error = 0;
  socklen_t size = sizeof error;
  if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
    result = 1;
  else if (errno == EINPROGRESS) {
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    result = poll(&wait, 1, ms) == 1 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
  }
  close(fd);
  return result;
}

static int watch(int argc, char **argv) {
  int fd = open(argv[2], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return 1;
  dprintf(fd, "started\n");
  struct timespec start, now;
  clock_gettime(CLOCK_MONOTONIC, &start);
  do {
    for (int at = 4; at + 1 < argc; at += 2)
      if (connects(argv[at], argv[at + 1], 200)) dprintf(fd, "connected %s:%s\n", argv[at], argv[at + 1]);
    clock_gettime(CLOCK_MONOTONIC, &now);
    usleep(5000);
  } while (now.tv_sec - start.tv_sec < atoi(argv[3]));
  dprintf(fd, "done\n");
  return close(fd);
}

static void ended(int signal) { _exit(128 + signal); }

int main(int argc, char **argv) {
  const char *verb = argc > 1 ? argv[1] : "";
  signal(SIGTERM, ended);
  if (!strcmp(verb, "args")) {
    for (int at = 2; at < argc; at++) dprintf(1, "%s\n", argv[at]);
    return 0;
  }
  if (!strcmp(verb, "cat")) return copy(0, 1);
  if (!strcmp(verb, "err") && argc == 3) return dprintf(2, "%s\n", argv[2]) < 0;
  if (!strcmp(verb, "exit") && argc == 3) return atoi(argv[2]);
  if (!strcmp(verb, "sleep") && argc == 3) {
    for (int left = atoi(argv[2]); left > 0;) left = sleep(left);
    return 0;
  }
  if (!strcmp(verb, "env") && argc == 3) {
    const char *value = getenv(argv[2]);
    return value == NULL ? 1 : dprintf(1, "%s\n", value) < 0;
  }
  if (!strcmp(verb, "read") && argc == 3) {
    int fd = open(argv[2], O_RDONLY | O_CLOEXEC);
    return fd < 0 ? 1 : copy(fd, 1);
  }
  if (!strcmp(verb, "write") && argc == 4) {
    int fd = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    return fd < 0 ? 1 : dprintf(fd, "%s\n", argv[3]) < 0;
  }
  if (!strcmp(verb, "id")) return dprintf(1, "%d:%d\n", getuid(), getgid()) < 0;
  if (!strcmp(verb, "tty")) {
    struct winsize size;
    if (ioctl(0, TIOCGWINSZ, &size) != 0) return 1;
    return dprintf(1, "%d %d\n", size.ws_row, size.ws_col) < 0;
  }
  if (!strcmp(verb, "connect") && argc == 5) return connects(argv[2], argv[3], atoi(argv[4])) ? 0 : 3;
  if (!strcmp(verb, "watch") && argc >= 6) return watch(argc, argv);
  dprintf(2, "probe: unknown verb \"%s\"\n", verb);
  return 2;
}
