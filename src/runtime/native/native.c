/*
 * What Node cannot do as PID 1: start a child without its own process table (so that reaping everything is safe), give it a
 * terminal, collect every exit status including those of orphans, and hide this process from others of the same user.
 * Plain C over libc, N-API and the poll handles of libuv that Node exports; no other library, so it runs wherever the
 * bundled Node does.
 *
 * System call results are numbers: >= 0 is success, < 0 is -errno. Nothing here throws for a failing system call.
 */
#define _GNU_SOURCE
#define NAPI_VERSION 9
#include <errno.h>
#include <fcntl.h>
#include <node_api.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

/* The part of libuv's stable 1.x interface that is used here; Node exports it, but no npm package carries its headers. */
typedef struct uv_loop_s uv_loop_t;
typedef struct uv_handle_s uv_handle_t;
enum { UV_POLL_HANDLE = 8, UV_READABLE = 1, UV_WRITABLE = 2 };
extern size_t uv_handle_size(int type);
extern void *uv_handle_get_data(const uv_handle_t *handle);
extern void uv_handle_set_data(uv_handle_t *handle, void *data);
extern int uv_poll_init(uv_loop_t *loop, uv_handle_t *handle, int fd);
extern int uv_poll_start(uv_handle_t *handle, int events, void (*callback)(uv_handle_t *, int status, int events));
extern int uv_poll_stop(uv_handle_t *handle);
extern void uv_close(uv_handle_t *handle, void (*callback)(uv_handle_t *));

#define CHECK(env, call)                                                         \
  do {                                                                           \
    if ((call) != napi_ok) {                                                     \
      napi_throw_type_error((env), NULL, "openshell native: " #call " failed");  \
      return NULL;                                                               \
    }                                                                            \
  } while (0)

enum stdio_mode { STDIO_PIPES = 0, STDIO_TERMINAL = 1, STDIO_LOG = 2 };

struct plan {
  const char *file;
  const char *cwd; /* empty: ours */
  char *const *argv;
  char *const *envp;
  int stdin_fd, stdout_fd, stderr_fd; /* the child's ends; -1: leave as inherited */
  int terminal;                       /* non-zero: stdin_fd becomes the controlling terminal */
  int report_fd;                      /* CLOEXEC pipe that carries errno when there is no exec */
};

/* --- the child, between clone and exec: async-signal-safe calls only ------------------------------------------------- */

static void fail_child(const struct plan *plan, int stage) {
  int report[2] = {errno, stage};
  ssize_t ignored = write(plan->report_fd, report, sizeof report);
  (void)ignored;
  _exit(127);
}

static void close_range_of(unsigned first, unsigned last) {
  if (first > last) return;
#ifdef SYS_close_range
  if (syscall(SYS_close_range, first, last, 0) == 0) return;
#endif
  for (unsigned fd = first; fd <= last && fd < 65536; fd += 1) close((int)fd);
}

/* At once, and not by exec: as long as its program takes to come from the disk, a copy here keeps the pipes of other children open. */
static void close_all_but(int report_fd) {
  close_range_of(3, (unsigned)report_fd - 1);
  close_range_of((unsigned)report_fd + 1, ~0U);
}

/* Node raises its own soft limit to the hard one. Programs that walk all their descriptors, or select(2) on them, count on the number that
   container engines and service managers give; who needs more raises it. */
enum { SOFT_DESCRIPTORS = 1024 };

static void lower_descriptor_limit(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur <= SOFT_DESCRIPTORS) return;
  limit.rlim_cur = SOFT_DESCRIPTORS;
  setrlimit(RLIMIT_NOFILE, &limit);
}

__attribute__((noinline, noreturn)) static void run_child(const struct plan *plan) {
  struct sigaction standard;
  memset(&standard, 0, sizeof standard);
  standard.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; number += 1) sigaction(number, &standard, NULL);

  if (setsid() < 0) fail_child(plan, 1);
  if (plan->terminal && ioctl(plan->stdin_fd, TIOCSCTTY, 0) < 0) fail_child(plan, 1);
  if (plan->stdin_fd >= 0 && dup2(plan->stdin_fd, 0) < 0) fail_child(plan, 1);
  if (plan->stdout_fd >= 0 && dup2(plan->stdout_fd, 1) < 0) fail_child(plan, 1);
  if (plan->stderr_fd >= 0 && dup2(plan->stderr_fd, 2) < 0) fail_child(plan, 1);
  close_all_but(plan->report_fd);
  lower_descriptor_limit();
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) fail_child(plan, 1);
  if (plan->cwd[0] != '\0' && chdir(plan->cwd) < 0) fail_child(plan, 2);

  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  execve(plan->file, plan->argv, plan->envp);
  fail_child(plan, 3);
  __builtin_unreachable();
}

static int enter_child(void *plan) { run_child(plan); }

/* --- the child, as the parent sees it ---------------------------------------------------------------------------------- */

/* A child from its beginning until it has its program. */
struct launch {
  struct plan plan;
  int report_fd; /* our end of the child's */
  pid_t pid;     /* -1: there is no child */
  int error, stage;
  napi_threadsafe_function done;
};

/* A process, or a thread of one, that waits for its tracer. */
struct tracee {
  pid_t tid;
  struct tracee *next;
};

/* A thread that begins children, one after the other. It never ends: to the kernel it is their parent, whose end a program may ask to share
   (PR_SET_PDEATHSIG, as `bwrap --die-with-parent` does), and whom it may ask to trace it (PTRACE_TRACEME). */
struct launcher {
  sem_t wanted, cloned;
  struct launch *launch;  /* NULL: none to begin */
  struct tracee *stopped; /* to be let go of */
  pid_t tid;              /* 0 before it runs, and has no child */
  struct launcher *next;  /* of those that have nothing to do */
  struct launcher *other; /* of all */
};

static pthread_mutex_t launchers_lock = PTHREAD_MUTEX_INITIALIZER;
static struct launcher *idle, *launchers;

/* It only makes system calls. */
enum { CHILD_STACK = 32 * 1024 };

/* As vfork, the page tables are not copied, which for Node is milliseconds; but the event loop goes on meanwhile, since the program's first
   page may come from a busy disk, and since the agent has our user and may stop the child at any instruction. Until the child has its own
   memory it writes this thread's stack and errno, and reads the plan; so this thread only waits until then. All signals are blocked here,
   and so in the child: none of our handlers runs in it. */
static void run_launch(struct launcher *self) {
  struct launch *launch = self->launch;
  _Alignas(16) char stack[CHILD_STACK];
  int message[2];
  ssize_t count;
  pid_t pid = clone(enter_child, stack + CHILD_STACK, CLONE_VM | SIGCHLD, &launch->plan);
  launch->pid = pid;
  if (pid < 0) launch->error = -errno;
  /* Before the next child can begin, which would hold a copy. */
  close(launch->plan.report_fd);
  sem_post(&self->cloned);
  /* Who asked has it back then. */
  if (pid < 0) return;
  /* By its pipe the child says that it failed; closing it, that it has left our memory, by exec or by its end. */
  while ((count = read(launch->report_fd, message, sizeof message)) > 0 || (count < 0 && errno == EINTR)) {
    if (count != (ssize_t)sizeof message) continue;
    launch->error = -message[0];
    launch->stage = message[1];
  }
  close(launch->report_fd);
  launch->report_fd = -1;
  /* One that is closing, as at the end of the program, has let go of this thread itself. */
  napi_threadsafe_function done = launch->done;
  if (napi_call_threadsafe_function(done, launch, napi_tsfn_blocking) != napi_closing)
    napi_release_threadsafe_function(done, napi_tsfn_release);
}

/* On the thread that traces it: who asked its parent for that goes on as if nobody traced it, with the signal that it was stopped for. */
static void let_go(pid_t tid) {
  siginfo_t why;
  intptr_t number = ptrace(PTRACE_GETSIGINFO, tid, NULL, &why) < 0 ? 0 : why.si_signo;
  /* By this one a tracee tells of its exec; it would end it. */
  if (number == SIGTRAP && why.si_code == SI_USER && why.si_pid == tid) number = 0;
  ptrace(PTRACE_DETACH, tid, NULL, (void *)number);
}

static void *run_launcher(void *data) {
  struct launcher *self = data;
  pthread_mutex_lock(&launchers_lock);
  self->tid = (pid_t)syscall(SYS_gettid);
  pthread_mutex_unlock(&launchers_lock);
  for (;;) {
    while (sem_wait(&self->wanted) < 0) continue;
    pthread_mutex_lock(&launchers_lock);
    struct tracee *stopped = self->stopped;
    int has_launch = self->launch != NULL;
    self->stopped = NULL;
    pthread_mutex_unlock(&launchers_lock);
    while (stopped != NULL) {
      struct tracee *next = stopped->next;
      let_go(stopped->tid);
      free(stopped);
      stopped = next;
    }
    if (!has_launch) continue;
    run_launch(self);
    pthread_mutex_lock(&launchers_lock);
    self->launch = NULL;
    self->next = idle;
    idle = self;
    pthread_mutex_unlock(&launchers_lock);
  }
  return NULL;
}

/* 0 or an errno. */
static int new_launcher(struct launcher **taken) {
  pthread_t thread;
  sigset_t all, before;
  struct launcher *made = calloc(1, sizeof *made);
  if (made == NULL) return ENOMEM;
  sem_init(&made->wanted, 0, 0);
  sem_init(&made->cloned, 0, 0);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = pthread_create(&thread, NULL, run_launcher, made);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (failed != 0) {
    free(made);
    return failed;
  }
  pthread_detach(thread);
  pthread_mutex_lock(&launchers_lock);
  made->other = launchers;
  launchers = made;
  pthread_mutex_unlock(&launchers_lock);
  *taken = made;
  return 0;
}

/* One that has nothing to do, else a new one. 0 or an errno. */
static int take_launcher(struct launcher **taken) {
  pthread_mutex_lock(&launchers_lock);
  *taken = idle;
  if (idle != NULL) idle = idle->next;
  pthread_mutex_unlock(&launchers_lock);
  return *taken != NULL ? 0 : new_launcher(taken);
}

/* On the event loop: done(error, stage). */
static void tell_launch(napi_env env, napi_value done, void *context, void *data) {
  struct launch *launch = data;
  napi_value receiver, argument[2];
  (void)context;
  if (env == NULL) return;
  if (napi_get_undefined(env, &receiver) == napi_ok && napi_create_int32(env, launch->error, &argument[0]) == napi_ok &&
      napi_create_int32(env, launch->stage, &argument[1]) == napi_ok)
    napi_call_function(env, receiver, done, 2, argument, NULL);
}

/* --- values across N-API ----------------------------------------------------------------------------------------------- */

static napi_value number(napi_env env, int64_t value) {
  napi_value result;
  CHECK(env, napi_create_int64(env, value, &result));
  return result;
}

static char *text(napi_env env, napi_value value) {
  size_t length;
  if (napi_get_value_string_utf8(env, value, NULL, 0, &length) != napi_ok) return NULL;
  char *copy = malloc(length + 1);
  if (copy == NULL) return NULL;
  if (napi_get_value_string_utf8(env, value, copy, length + 1, &length) != napi_ok) {
    free(copy);
    return NULL;
  }
  return copy;
}

static void free_texts(char **list) {
  if (list == NULL) return;
  for (char **one = list; *one != NULL; one += 1) free(*one);
  free(list);
}

static char **texts(napi_env env, napi_value array) {
  uint32_t length;
  if (napi_get_array_length(env, array, &length) != napi_ok) return NULL;
  char **list = calloc((size_t)length + 1, sizeof *list);
  if (list == NULL) return NULL;
  for (uint32_t index = 0; index < length; index += 1) {
    napi_value element;
    if (napi_get_element(env, array, index, &element) != napi_ok || (list[index] = text(env, element)) == NULL) {
      free_texts(list);
      return NULL;
    }
  }
  return list;
}

static int put(napi_env env, napi_value object, const char *name, int64_t value) {
  napi_value held;
  return napi_create_int64(env, value, &held) == napi_ok && napi_set_named_property(env, object, name, held) == napi_ok;
}

/* --- spawn -------------------------------------------------------------------------------------------------------------- */

struct ends {
  int parent_in, parent_out, parent_err; /* -1 where there is none */
  int child_in, child_out, child_err;
};

static void shut(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

static int one_pipe(int *reader, int *writer) {
  int both[2];
  if (pipe2(both, O_CLOEXEC) < 0) return -1;
  *reader = both[0];
  *writer = both[1];
  return 0;
}

static int set_nonblocking(int fd) {
  int flags = fcntl(fd, F_GETFL);
  return flags < 0 ? -1 : fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

static int open_pipes(struct ends *ends) {
  if (one_pipe(&ends->child_in, &ends->parent_in) < 0) return -1;
  if (one_pipe(&ends->parent_out, &ends->child_out) < 0) return -1;
  if (one_pipe(&ends->parent_err, &ends->child_err) < 0) return -1;
  if (set_nonblocking(ends->parent_in) < 0 || set_nonblocking(ends->parent_out) < 0) return -1;
  return set_nonblocking(ends->parent_err);
}

static int open_terminal(struct ends *ends, int columns, int rows) {
  char name[128];
  ends->parent_out = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (ends->parent_out < 0) return -1;
  if (grantpt(ends->parent_out) < 0 || unlockpt(ends->parent_out) < 0) return -1;
  int failed = ptsname_r(ends->parent_out, name, sizeof name);
  if (failed != 0) {
    errno = failed;
    return -1;
  }
  ends->child_in = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (ends->child_in < 0) return -1;
  struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};
  if (ioctl(ends->parent_out, TIOCSWINSZ, &size) < 0) return -1;
  return set_nonblocking(ends->parent_out);
}

static int open_stdio(struct ends *ends, int mode, int columns, int rows) {
  switch (mode) {
    case STDIO_PIPES:
      return open_pipes(ends);
    case STDIO_TERMINAL:
      return open_terminal(ends, columns, rows);
    default: /* STDIO_LOG: nothing to read, output goes where ours goes */
      ends->child_in = open("/dev/null", O_RDONLY | O_CLOEXEC);
      return ends->child_in < 0 ? -1 : 0;
  }
}

/* 0 when there is a child, of which `done` will be told; otherwise -errno. */
static int64_t begin(struct launch *launch, struct ends *ends, int mode, int columns, int rows) {
  struct plan *plan = &launch->plan;
  struct launcher *launcher;
  if (open_stdio(ends, mode, columns, rows) < 0) return -errno;
  if (one_pipe(&launch->report_fd, &plan->report_fd) < 0) return -errno;
  plan->terminal = mode == STDIO_TERMINAL;
  plan->stdin_fd = ends->child_in;
  plan->stdout_fd = plan->terminal ? ends->child_in : ends->child_out;
  plan->stderr_fd = plan->terminal ? ends->child_in : ends->child_err;
  int failed = take_launcher(&launcher);
  if (failed != 0) {
    close(plan->report_fd);
    return -failed;
  }
  pthread_mutex_lock(&launchers_lock);
  launcher->launch = launch;
  pthread_mutex_unlock(&launchers_lock);
  sem_post(&launcher->wanted);
  while (sem_wait(&launcher->cloned) < 0) continue;
  return launch->pid < 0 ? launch->error : 0;
}

/* On the event loop: of one that is told of, or that did not begin. */
static void free_launch(napi_env env, void *data, void *hint) {
  struct launch *launch = data;
  (void)env;
  (void)hint;
  /* This program ends, and a child that has none yet still reads the plan. */
  if (launch->pid > 0 && launch->report_fd >= 0) return;
  shut(&launch->report_fd);
  free((char *)launch->plan.file);
  free((char *)launch->plan.cwd);
  free_texts((char **)launch->plan.argv);
  free_texts((char **)launch->plan.envp);
  free(launch);
}

/* From spawn's arguments; NULL where one of them is of another type. */
static struct launch *new_launch(napi_env env, const napi_value *argument) {
  napi_value name;
  struct launch *launch = calloc(1, sizeof *launch);
  if (launch == NULL) return NULL;
  launch->pid = launch->report_fd = -1;
  launch->plan.file = text(env, argument[0]);
  launch->plan.argv = texts(env, argument[1]);
  launch->plan.envp = texts(env, argument[2]);
  launch->plan.cwd = text(env, argument[3]);
  if (launch->plan.file != NULL && launch->plan.argv != NULL && launch->plan.envp != NULL && launch->plan.cwd != NULL &&
      napi_create_string_utf8(env, "openshell:launch", NAPI_AUTO_LENGTH, &name) == napi_ok &&
      napi_create_threadsafe_function(env, argument[7], NULL, name, 0, 1, launch, free_launch, NULL, tell_launch,
                                      &launch->done) == napi_ok)
    return launch;
  free_launch(env, launch, NULL);
  return NULL;
}

/* spawn(file, argv, envp, cwd, mode, columns, rows, done) -> {error, pid, stdin, stdout, stderr, terminal}. A terminal is `stdout`, and its
   other side `terminal`: while nobody has that open, reading says that the terminal was hung up. Unless there was an error, done(error,
   stage) is called once: with 0 when the program runs or the child was ended before, else with -errno and the step that failed
   (1 preparation, 2 chdir, 3 execve). */
static napi_value spawn(napi_env env, napi_callback_info info) {
  napi_value argument[8], result;
  size_t count = 8;
  int32_t mode, columns, rows;
  CHECK(env, napi_get_cb_info(env, info, &count, argument, NULL, NULL));
  CHECK(env, napi_get_value_int32(env, argument[4], &mode));
  CHECK(env, napi_get_value_int32(env, argument[5], &columns));
  CHECK(env, napi_get_value_int32(env, argument[6], &rows));
  CHECK(env, napi_create_object(env, &result));
  struct launch *launch = new_launch(env, argument);
  if (launch == NULL) {
    napi_throw_type_error(env, NULL, "spawn(file, argv, envp, cwd, mode, columns, rows, done)");
    return NULL;
  }

  struct ends ends = {-1, -1, -1, -1, -1, -1};
  int64_t error = begin(launch, &ends, mode, columns, rows);
  pid_t pid = launch->pid;
  if (error < 0) {
    napi_release_threadsafe_function(launch->done, napi_tsfn_release);
    shut(&ends.parent_in);
    shut(&ends.parent_out);
    shut(&ends.parent_err);
  }
  int terminal = error == 0 && mode == STDIO_TERMINAL ? ends.child_in : -1;
  if (terminal < 0) shut(&ends.child_in);
  shut(&ends.child_out);
  shut(&ends.child_err);
  int put_all = put(env, result, "error", error) && put(env, result, "pid", pid) &&
                put(env, result, "stdin", ends.parent_in) && put(env, result, "stdout", ends.parent_out) &&
                put(env, result, "stderr", ends.parent_err) && put(env, result, "terminal", terminal);
  return put_all ? result : NULL;
}

/* --- children and this process -------------------------------------------------------------------------------------------- */

/* The thread that traces it, as /proc has it; 0 where there is none. */
static pid_t tracer_of(pid_t tid) {
  char path[32], status[1024];
  snprintf(path, sizeof path, "/proc/%d/status", (int)tid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t length = read(fd, status, sizeof status - 1);
  close(fd);
  status[length < 0 ? 0 : length] = '\0';
  const char *line = strstr(status, "\nTracerPid:");
  return line == NULL ? 0 : (pid_t)strtol(line + strlen("\nTracerPid:"), NULL, 10);
}

/* Nobody here wants to trace, but whoever asks to be traced by its parent, to see whether a debugger does it already, is stopped by its
   next signal until its tracer lets go of it: the launcher that began it or, of an orphan, this thread. */
static void free_tracee(pid_t tid) {
  pid_t tracer = tracer_of(tid);
  struct tracee *stopped = tracer == getpid() ? NULL : malloc(sizeof *stopped);
  if (stopped == NULL) {
    let_go(tid);
    return;
  }
  stopped->tid = tid;
  pthread_mutex_lock(&launchers_lock);
  struct launcher *one = launchers;
  while (one != NULL && one->tid != tracer) one = one->other;
  if (one != NULL) {
    stopped->next = one->stopped;
    one->stopped = stopped;
    sem_post(&one->wanted);
  }
  pthread_mutex_unlock(&launchers_lock);
  if (one == NULL) free(stopped);
}

/* reap() -> [pid, exit code, signal, pid, …] of every child that ended, adopted ones included. */
static napi_value reap(napi_env env, napi_callback_info info) {
  (void)info;
  napi_value result;
  uint32_t length = 0;
  CHECK(env, napi_create_array(env, &result));
  for (;;) {
    int status;
    pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) return result;
    if (!WIFEXITED(status) && !WIFSIGNALED(status)) {
      free_tracee(pid);
      continue;
    }
    CHECK(env, napi_set_element(env, result, length++, number(env, pid)));
    CHECK(env, napi_set_element(env, result, length++, number(env, WIFEXITED(status) ? WEXITSTATUS(status) : 0)));
    CHECK(env, napi_set_element(env, result, length++, number(env, WIFSIGNALED(status) ? WTERMSIG(status) : 0)));
  }
}

/* signal(pid, number) -> 0 | -errno; a negative pid is a process group, -1 everything we may signal except ourselves. */
static napi_value send_signal(napi_env env, napi_callback_info info) {
  napi_value argument[2];
  size_t count = 2;
  int32_t pid, signal_number;
  CHECK(env, napi_get_cb_info(env, info, &count, argument, NULL, NULL));
  CHECK(env, napi_get_value_int32(env, argument[0], &pid));
  CHECK(env, napi_get_value_int32(env, argument[1], &signal_number));
  return number(env, kill(pid, signal_number) < 0 ? -errno : 0);
}

/* hide() -> 0 | -errno: /proc/self belongs to root from here on, no ptrace, no core dump. Lost at execve, so children are plain. */
static napi_value hide(napi_env env, napi_callback_info info) {
  (void)info;
  return number(env, prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ? -errno : 0);
}

/* adopt() -> 0 | -errno: orphans among our descendants become our children even where we are not PID 1. */
static napi_value adopt(napi_env env, napi_callback_info info) {
  (void)info;
  return number(env, prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0 ? -errno : 0);
}

/* --- descriptors ------------------------------------------------------------------------------------------------------------ */

static napi_value transfer(napi_env env, napi_callback_info info, int writes) {
  napi_value argument[3];
  size_t count = 3, length;
  int32_t fd;
  uint32_t offset;
  uint8_t *bytes;
  napi_typedarray_type type;
  CHECK(env, napi_get_cb_info(env, info, &count, argument, NULL, NULL));
  CHECK(env, napi_get_value_int32(env, argument[0], &fd));
  CHECK(env, napi_get_typedarray_info(env, argument[1], &type, &length, (void **)&bytes, NULL, NULL));
  CHECK(env, napi_get_value_uint32(env, argument[2], &offset));
  if (type != napi_uint8_array || offset > length) {
    napi_throw_range_error(env, NULL, "a Uint8Array and an offset inside it are needed");
    return NULL;
  }
  ssize_t done;
  do done = writes ? write(fd, bytes + offset, length - offset) : read(fd, bytes + offset, length - offset);
  while (done < 0 && errno == EINTR);
  return number(env, done < 0 ? -errno : done);
}

/* read(fd, bytes, offset) -> count | -errno; 0 is the end. */
static napi_value read_some(napi_env env, napi_callback_info info) { return transfer(env, info, 0); }

/* write(fd, bytes, offset) -> count | -errno. */
static napi_value write_some(napi_env env, napi_callback_info info) { return transfer(env, info, 1); }

static napi_value close_fd(napi_env env, napi_callback_info info) {
  napi_value argument[1];
  size_t count = 1;
  int32_t fd;
  CHECK(env, napi_get_cb_info(env, info, &count, argument, NULL, NULL));
  CHECK(env, napi_get_value_int32(env, argument[0], &fd));
  return number(env, close(fd) < 0 ? -errno : 0);
}

/* sync(fd) -> 0 | -errno: everything written to the file system that holds fd is on its disk. */
static napi_value sync_file_system(napi_env env, napi_callback_info info) {
  napi_value argument[1];
  size_t count = 1;
  int32_t fd;
  CHECK(env, napi_get_cb_info(env, info, &count, argument, NULL, NULL));
  CHECK(env, napi_get_value_int32(env, argument[0], &fd));
  return number(env, syncfs(fd) < 0 ? -errno : 0);
}

/* resize(fd, columns, rows) -> 0 | -errno; the kernel tells the foreground process group by SIGWINCH. */
static napi_value resize(napi_env env, napi_callback_info info) {
  napi_value argument[3];
  size_t count = 3;
  int32_t fd, columns, rows;
  CHECK(env, napi_get_cb_info(env, info, &count, argument, NULL, NULL));
  CHECK(env, napi_get_value_int32(env, argument[0], &fd));
  CHECK(env, napi_get_value_int32(env, argument[1], &columns));
  CHECK(env, napi_get_value_int32(env, argument[2], &rows));
  struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};
  return number(env, ioctl(fd, TIOCSWINSZ, &size) < 0 ? -errno : 0);
}

/* --- readiness: one poll handle per descriptor, armed for one event at a time ----------------------------------------------- */

struct watch {
  uv_handle_t *handle;
  napi_env env;
  napi_ref callback;
  napi_async_context context;
};

static void on_ready(uv_handle_t *handle, int status, int events) {
  struct watch *watch = uv_handle_get_data(handle);
  napi_handle_scope scope;
  napi_value callback, receiver, argument;
  uv_poll_stop(handle);
  if (napi_open_handle_scope(watch->env, &scope) != napi_ok) return;
  /* An error is told as readiness: the read or write that follows gets it as errno. */
  if (napi_get_reference_value(watch->env, watch->callback, &callback) == napi_ok &&
      napi_get_global(watch->env, &receiver) == napi_ok &&
      napi_create_int32(watch->env, status < 0 ? UV_READABLE | UV_WRITABLE : events, &argument) == napi_ok)
    napi_make_callback(watch->env, watch->context, receiver, callback, 1, &argument, NULL);
  napi_close_handle_scope(watch->env, scope);
}

/* watch(fd, callback) -> handle, or -errno. */
static napi_value watch_fd(napi_env env, napi_callback_info info) {
  napi_value argument[2], name, result;
  size_t count = 2;
  int32_t fd;
  uv_loop_t *loop;
  CHECK(env, napi_get_cb_info(env, info, &count, argument, NULL, NULL));
  CHECK(env, napi_get_value_int32(env, argument[0], &fd));
  CHECK(env, napi_get_uv_event_loop(env, (void *)&loop));
  struct watch *watch = calloc(1, sizeof *watch);
  uv_handle_t *handle = calloc(1, uv_handle_size(UV_POLL_HANDLE));
  int failed = watch == NULL || handle == NULL ? -ENOMEM : uv_poll_init(loop, handle, fd);
  if (failed < 0) {
    free(watch);
    free(handle);
    return number(env, failed);
  }
  watch->handle = handle;
  watch->env = env;
  uv_handle_set_data(handle, watch);
  CHECK(env, napi_create_reference(env, argument[1], 1, &watch->callback));
  CHECK(env, napi_create_string_utf8(env, "openshell:poll", NAPI_AUTO_LENGTH, &name));
  CHECK(env, napi_async_init(env, NULL, name, &watch->context));
  CHECK(env, napi_create_external(env, watch, NULL, NULL, &result));
  return result;
}

/* arm(handle, events) -> 0 | -errno; 1 readable, 2 writable; the callback comes once. */
static napi_value arm(napi_env env, napi_callback_info info) {
  napi_value argument[2];
  size_t count = 2;
  int32_t events;
  struct watch *watch;
  CHECK(env, napi_get_cb_info(env, info, &count, argument, NULL, NULL));
  CHECK(env, napi_get_value_external(env, argument[0], (void **)&watch));
  CHECK(env, napi_get_value_int32(env, argument[1], &events));
  return number(env, uv_poll_start(watch->handle, events, on_ready));
}

/* The context is destroyed only here: unwatch may be called from within the callback that uses it. */
static void on_closed(uv_handle_t *handle) {
  struct watch *watch = uv_handle_get_data(handle);
  napi_handle_scope scope;
  if (napi_open_handle_scope(watch->env, &scope) == napi_ok) {
    napi_delete_reference(watch->env, watch->callback);
    napi_async_destroy(watch->env, watch->context);
    napi_close_handle_scope(watch->env, scope);
  }
  free(watch);
  free(handle);
}

/* unwatch(handle): before its descriptor is closed; the handle is not to be used again. */
static napi_value unwatch(napi_env env, napi_callback_info info) {
  napi_value argument[1];
  size_t count = 1;
  struct watch *watch;
  CHECK(env, napi_get_cb_info(env, info, &count, argument, NULL, NULL));
  CHECK(env, napi_get_value_external(env, argument[0], (void **)&watch));
  uv_poll_stop(watch->handle);
  uv_close(watch->handle, on_closed);
  return number(env, 0);
}

NAPI_MODULE_INIT() {
  const napi_property_descriptor functions[] = {
      {"spawn", NULL, spawn, NULL, NULL, NULL, napi_default, NULL},
      {"reap", NULL, reap, NULL, NULL, NULL, napi_default, NULL},
      {"signal", NULL, send_signal, NULL, NULL, NULL, napi_default, NULL},
      {"hide", NULL, hide, NULL, NULL, NULL, napi_default, NULL},
      {"adopt", NULL, adopt, NULL, NULL, NULL, napi_default, NULL},
      {"read", NULL, read_some, NULL, NULL, NULL, napi_default, NULL},
      {"write", NULL, write_some, NULL, NULL, NULL, napi_default, NULL},
      {"close", NULL, close_fd, NULL, NULL, NULL, napi_default, NULL},
      {"sync", NULL, sync_file_system, NULL, NULL, NULL, napi_default, NULL},
      {"resize", NULL, resize, NULL, NULL, NULL, napi_default, NULL},
      {"watch", NULL, watch_fd, NULL, NULL, NULL, napi_default, NULL},
      {"arm", NULL, arm, NULL, NULL, NULL, napi_default, NULL},
      {"unwatch", NULL, unwatch, NULL, NULL, NULL, napi_default, NULL},
  };
  if (napi_define_properties(env, exports, sizeof functions / sizeof functions[0], functions) != napi_ok) return NULL;
  return exports;
}
