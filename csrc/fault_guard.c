#include "fault_guard.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>

typedef struct guard {
    sigjmp_buf resume;
    const uint8_t *data;
    size_t size;
    volatile int64_t fault; /* set between sigsetjmp and siglongjmp */
} guard;

/* The guard of the job that this thread runs, if any. A signal handler accesses it, so its
 * storage must not be allocated on first use. */
#if defined(__linux__)
__attribute__((tls_model("initial-exec")))
#endif
static _Thread_local guard *active;

/* Our handler is installed only while jobs run. Otherwise the process keeps its own handler, and
 * a handler that is set after import (by faulthandler, for example) does not disable the guard.
 *
 * Code that replaces our handler while a job runs may save ours and restore it at any time.
 * Therefore we install a different function over its handler than the one that it saved, and each
 * of our functions knows which handler it replaced: a signal that is passed down the chain of
 * handlers reaches an end, in whatever order handlers are restored. */
enum { LEVELS = 4 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int running_jobs;
static int level; /* of the function that is installed, or will be installed next */
static struct sigaction previous[LEVELS];

static _Thread_local volatile sig_atomic_t is_passing_on;

static void die_of(int signal_number) {
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static int has_handler(const struct sigaction *action) {
    return (action->sa_flags & SA_SIGINFO) ||
           (action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN);
}

static void call_handler(const struct sigaction *action, int signal_number, siginfo_t *info,
                         void *machine) {
    if (action->sa_flags & SA_SIGINFO) {
        action->sa_sigaction(signal_number, info, machine);
    } else {
        action->sa_handler(signal_number);
    }
}

/* Passes signals that are not ours to the handler that we replaced. If that handler raises the
 * signal again, no handler is left, and the default action applies. */
static void pass_on(const struct sigaction *below, int signal_number, siginfo_t *info,
                    void *machine) {
    int was_sent = info->si_code <= 0; /* by kill() or raise(), not by a fault */
    if (is_passing_on && was_sent) {
        die_of(signal_number);
    } else if (has_handler(below)) {
        is_passing_on = 1;
        call_handler(below, signal_number, info, machine);
        is_passing_on = 0;
    } else if (!(was_sent && below->sa_handler == SIG_IGN)) {
        die_of(signal_number);
    }
}

static void on_fault(const struct sigaction *below, int signal_number, siginfo_t *info,
                     void *machine) {
    guard *g = active;
    const uint8_t *address = info->si_addr;
    int is_ours = g != NULL && info->si_code > 0 && address >= g->data &&
                  (size_t)(address - g->data) < g->size;
    if (is_ours) {
        g->fault = address - g->data;
        siglongjmp(g->resume, 1);
    }
    pass_on(below, signal_number, info, machine);
}

#define ON_FAULT_AT(LEVEL) \
    static void on_fault_##LEVEL(int number, siginfo_t *info, void *machine) { \
        on_fault(&previous[LEVEL], number, info, machine); \
    }
ON_FAULT_AT(0)
ON_FAULT_AT(1)
ON_FAULT_AT(2)
ON_FAULT_AT(3)

typedef void (*fault_handler)(int, siginfo_t *, void *);
static const fault_handler handlers[LEVELS] = {on_fault_0, on_fault_1, on_fault_2, on_fault_3};

/* The level of one of our functions; -1 for other functions. */
static int level_of(const struct sigaction *action) {
    if (!(action->sa_flags & SA_SIGINFO)) return -1;
    for (int i = 0; i < LEVELS; i++) {
        if (action->sa_sigaction == handlers[i]) return i;
    }
    return -1;
}

/* Both read the installed handler, then change it. If another thread sets a handler in between (a
 * fault makes faulthandler restore one), the change returns that handler. */
static void put_up(void) {
    struct sigaction ours, replaced;
    sigaction(SIGBUS, NULL, &replaced);
    if (level_of(&replaced) < 0) {
        memset(&ours, 0, sizeof ours);
        ours.sa_sigaction = handlers[level];
        /* SA_NODEFER: after the jump out of the handler, the signal is not blocked. */
        ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
        sigemptyset(&ours.sa_mask);
        previous[level] = replaced;
        sigaction(SIGBUS, &ours, &replaced);
        if (level_of(&replaced) < 0) {
            previous[level] = replaced;
            return;
        }
        sigaction(SIGBUS, &replaced, NULL);
    }
    level = level_of(&replaced); /* restored by the code that had replaced it */
}

static void take_down(void) {
    struct sigaction standing, replaced;
    sigaction(SIGBUS, NULL, &standing);
    while (level_of(&standing) >= 0) {
        level = level_of(&standing);
        sigaction(SIGBUS, &previous[level], &replaced);
        if (level_of(&replaced) == level) return;
        sigaction(SIGBUS, &replaced, NULL);
        standing = replaced;
    }
    if (level < LEVELS - 1) level++; /* we were replaced, and may be restored */
}

/* fork() copies the state of the lock. It is held during the fork, so that it is free in the
 * child, where no job runs. */
static void before_fork(void) { pthread_mutex_lock(&lock); }

static void after_fork_in_parent(void) { pthread_mutex_unlock(&lock); }

static void after_fork_in_child(void) {
    if (running_jobs > 0) take_down();
    running_jobs = 0;
    active = NULL;
    pthread_mutex_unlock(&lock);
}

static void watch_forks(void) {
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static void enter(void) {
    pthread_mutex_lock(&lock);
    if (running_jobs++ == 0) put_up();
    pthread_mutex_unlock(&lock);
}

static void leave(void) {
    pthread_mutex_lock(&lock);
    if (--running_jobs == 0) take_down();
    pthread_mutex_unlock(&lock);
}

int64_t ks_run_guarded(ks_job job, void *context, const uint8_t *data, size_t size) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (size == 0) { /* nothing can fault */
        job(context);
        return -1;
    }
    pthread_once(&once, watch_forks);
    guard g = {.data = data, .size = size, .fault = -1};
    enter();
    active = &g;
    if (sigsetjmp(g.resume, 0) == 0) job(context);
    active = NULL;
    leave();
    return g.fault;
}
