#include "fault_guard.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

typedef struct guard {
    sigjmp_buf resume;
    const uint8_t *data;
    size_t size;
    volatile int64_t fault; /* set between sigsetjmp and siglongjmp */
} guard;

/* The guard of the job that this thread runs, if it runs one. Reached from a signal
 * handler, so its storage must exist without a call into the allocator. */
#if defined(__linux__)
__attribute__((tls_model("initial-exec")))
#endif
static _Thread_local guard *active;

/* Our handler stands only while jobs run: the process keeps its own otherwise, and
 * one that was set after import (faulthandler's, say) does not switch the guard off. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int running_jobs;
static struct sigaction previous;

static _Thread_local volatile sig_atomic_t is_passing_on;

/* Threads that are inside of the handler that stood before ours. While one is, handlers
 * stay as they are: faulthandler puts back what it replaced, us, and raises the signal
 * again. Were it put in our place in between, it would call itself for ever. */
static atomic_int passing_threads;

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

/* What is not ours goes where it would have gone without us. A handler that was installed
 * while ours stood may raise the signal again, for us: then nobody is left to ask. */
static void pass_on(int signal_number, siginfo_t *info, void *machine) {
    int was_sent = info->si_code <= 0; /* by kill() or raise(), not by a fault */
    if (is_passing_on && was_sent) {
        die_of(signal_number);
    } else if (has_handler(&previous)) {
        is_passing_on = 1;
        atomic_fetch_add(&passing_threads, 1);
        call_handler(&previous, signal_number, info, machine);
        atomic_fetch_sub(&passing_threads, 1);
        is_passing_on = 0;
    } else if (!(was_sent && previous.sa_handler == SIG_IGN)) {
        die_of(signal_number);
    }
}

static void on_fault(int signal_number, siginfo_t *info, void *machine) {
    guard *g = active;
    const uint8_t *address = info->si_addr;
    int is_ours = g != NULL && info->si_code > 0 && address >= g->data &&
                  (size_t)(address - g->data) < g->size;
    if (is_ours) {
        g->fault = address - g->data;
        siglongjmp(g->resume, 1);
    }
    pass_on(signal_number, info, machine);
}

static int stands_for(const struct sigaction *action) {
    return (action->sa_flags & SA_SIGINFO) && action->sa_sigaction == on_fault;
}

/* Takes our handler away, unless another one was put in its place meanwhile. A signal that
 * arrives between the question and the change gets the handler back that it was met by. */
static void restore(void) {
    struct sigaction current;
    sigaction(SIGBUS, NULL, &current);
    if (!stands_for(&current) || atomic_load(&passing_threads) > 0) return;
    sigaction(SIGBUS, &previous, NULL);
    if (atomic_load(&passing_threads) > 0) sigaction(SIGBUS, &current, NULL);
}

/* fork() copies the lock as it is. It is held across, so that the child finds it free; no
 * job runs in the child, whatever other threads of its parent were at. */
static void before_fork(void) { pthread_mutex_lock(&lock); }

static void after_fork_in_parent(void) { pthread_mutex_unlock(&lock); }

static void after_fork_in_child(void) {
    atomic_store(&passing_threads, is_passing_on ? 1 : 0);
    if (running_jobs > 0) restore();
    running_jobs = 0;
    active = NULL;
    pthread_mutex_unlock(&lock);
}

static void watch_forks(void) {
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static void enter(void) {
    pthread_mutex_lock(&lock);
    if (running_jobs++ == 0) {
        struct sigaction action;
        memset(&action, 0, sizeof action);
        action.sa_sigaction = on_fault;
        /* SA_NODEFER: the jump out of the handler leaves no signal blocked. */
        action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
        sigemptyset(&action.sa_mask);
        struct sigaction replaced;
        sigaction(SIGBUS, &action, &replaced);
        if (!stands_for(&replaced)) previous = replaced;
    }
    pthread_mutex_unlock(&lock);
}

static void leave(void) {
    pthread_mutex_lock(&lock);
    if (--running_jobs == 0) restore();
    pthread_mutex_unlock(&lock);
}

int64_t ks_run_guarded(ks_job job, void *context, const uint8_t *data, size_t size) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    guard g = {.data = data, .size = size, .fault = -1};
    enter();
    active = &g;
    if (sigsetjmp(g.resume, 0) == 0) job(context);
    active = NULL;
    leave();
    return g.fault;
}
