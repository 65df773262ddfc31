// SPDX-License-Identifier: Apache-2.0
/// The structs of the runtime, and who may touch what. Everything is reached from the core: one per opened backend.
///
/// Lock: one admission lock per backend guards ledgers, queue, timers, groups, health, counters. `berthi_lock` also opens the sequence lock that
/// metrics snapshots validate against (MET-1), so whatever changes between lock and unlock is seen whole or not at all.
#ifndef BERTHI_CORE_H
#define BERTHI_CORE_H

#include "base/annotate.h"
#include "base/assert.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/histogram.h"
#include "base/lock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "berth/runtime.h"
#include "device/device.h"
#include "runtime/gate.h"
#include "runtime/states.h"

typedef struct berthi_core berthi_core;
typedef struct berthi_request berthi_request;
typedef struct berthi_timer berthi_timer;

#define BERTHI_STRIPES 8
#define BERTHI_NO_STRIPE UINT32_MAX
#define BERTHI_NO_BARRIER UINT32_MAX
#define BERTHI_SLOW_WAITERS 1u ///< somebody waits, or a device is not OK; written under the admission lock
#define BERTHI_SLOW_CLOSING 2u ///< set with the signal, for good

// ---- intrusive helpers -------------------------------------------------------------------------------------------------------------------

typedef struct berthi_link {
  struct berthi_link *prev, *next; ///< NULL when not in a list
} berthi_link;

static inline void berthi_list_init(berthi_link *head) { head->prev = head->next = head; }
static inline bool berthi_list_empty(const berthi_link *head) { return head->next == head; }
static inline void berthi_list_insert_after(berthi_link *at, berthi_link *node) {
  node->prev = at;
  node->next = at->next;
  at->next->prev = node;
  at->next = node;
}
static inline void berthi_list_append(berthi_link *head, berthi_link *node) { berthi_list_insert_after(head->prev, node); }
static inline void berthi_list_remove(berthi_link *node) {
  node->prev->next = node->next; // NOLINT(clang-analyzer-core.NullDereference): a linked node has neighbours
  node->next->prev = node->prev;
  node->prev = node->next = NULL;
}

/// Statistics under the admission lock: one writer at a time, read by snapshots. Release so that a reader that sees the value sees the sequence
/// lock's odd number before it (metrics.c loads with acquire).
typedef _Atomic uint64_t berthi_stat;
static inline uint64_t berthi_get(const berthi_stat *s) { return atomic_load_explicit(s, memory_order_acquire); }
static inline void berthi_put(berthi_stat *s, uint64_t v) { atomic_store_explicit(s, v, memory_order_release); }
static inline void berthi_up(berthi_stat *s, uint64_t by) { berthi_put(s, atomic_load_explicit(s, memory_order_relaxed) + by); }
static inline void berthi_down(berthi_stat *s, uint64_t by) { berthi_put(s, atomic_load_explicit(s, memory_order_relaxed) - by); }

typedef struct berthi_stat_histogram {
  berthi_stat buckets[BERTHI_HISTOGRAM_BUCKETS];
  berthi_stat count, sum, max;
} berthi_stat_histogram;

/// A timer of the keeper, in the pairing heap under the admission lock. `fire` runs on the keeper with the lock held.
struct berthi_timer {
  int64_t at;
  berthi_timer *child, *next, *prev; ///< pairing heap; prev of the first child is its parent
  bool armed;
  void (*fire)(berthi_core *core, berthi_timer *timer, int64_t now);
};

/// Something the notifier runs on its thread (USR-2).
typedef struct berthi_note {
  berthi_link link;
  bool queued;
  void (*run)(struct berthi_note *note);
} berthi_note;

// ---- groups and ledgers (admission lock) ---------------------------------------------------------------------------------------------------

typedef struct berthi_group {
  char name[BERTH_GROUP_NAME];
  uint32_t max_queued, max_active, max_lanes;
  uint64_t max_bytes;
  berthi_stat queued, active, lanes, bytes; ///< use
} berthi_group;

typedef struct berthi_ledger {
  // Constant after open.
  uint64_t capacity;      ///< M = Q + K as configured
  uint64_t cache_limit;   ///< K
  uint64_t library, reserve;
  uint64_t default_grant;
  uint32_t slots, lanes;
  // Under the lock.
  berthi_stat query_limit; ///< Q: capacity - K, less what LED-6 took away when the limits were re-read
  berthi_stat resident, cache, grants, leaked, withheld;
  berthi_stat external_charged, external_measured;
  berthi_stat striped_bytes; ///< bytes of grants on stripes, parked or busy
  berthi_stat active, promised_lanes;        ///< without stripes
  berthi_stat striped_active, striped_lanes; ///< on stripes
  berthi_lanemask lanes_free;
} berthi_ledger;

typedef struct berthi_device_slot {
  berthi_core *core;
  uint32_t index;
  const berthi_device_kind *kind;
  uint32_t ordinal;
  berthi_device *device; ///< NULL once closed
  berth_startup_record startup;
  char identity[BERTH_DEVICE_IDENTITY];
  uint32_t capabilities;
  berthi_ledger ledger;
  // Health (lock).
  berthi_stat health;           ///< berth_health
  berthi_fault_class fault;     ///< last known
  berth_error first_fault;
  berthi_timer health_timer;    ///< SUSPECT limit, pause before a probe
  berthi_timer cleanup_timer;   ///< of its own: a probe may end after the clean-up has been asked for
  uint32_t failed_probes;
  bool probe_wanted, resolve_wanted;
  bool quarantine_wanted;       ///< by hand, during a probe: it counts more than what the probe finds
  berthi_stat quarantines, faults, granted;
  // Close (lock).
  enum { BERTHI_SLOT_LIVE, BERTHI_SLOT_CLEANING, BERTHI_SLOT_RELEASED, BERTHI_SLOT_LEAKED } closing;
  bool cleanup_wanted, cleanup_begun, thread_leave;
  int64_t cleanup_since;
  berth_error cleanup_error;
  // The device's own thread: probes and clean-up (CLS-4).
  berthi_event wake;
  bool thread_started;
  // Telemetry (telemetry lock).
  berthi_telemetry sample;
  berth_status sample_status;
  int64_t sample_at;
} berthi_device_slot;

/// An immutable promise, as held by an execution. Shrink and grow change `bytes` under the lock.
typedef struct berthi_grant {
  uint32_t device;
  uint32_t stripe; ///< stripe whose parked grant this is, or BERTHI_NO_STRIPE
  uint64_t bytes;
  uint32_t lanes;
  berthi_lanemask mask;
  berthi_group *group;
} berthi_grant;

// ---- requests --------------------------------------------------------------------------------------------------------------------------------

/// One request on its way through the queue. Part of an attempt, or of a scoped entry of a thread.
struct berthi_request {
  // Constant after submission.
  berthi_core *core;
  berth_attempt *attempt; ///< NULL for a scoped entry without a report
  berth_exec *exec;       ///< what the grant is written to
  uint64_t sequence;
  int64_t key;            ///< submission time - priority x aging_interval (ADM-6)
  int64_t submitted_at;
  int64_t expires_at;
  uint64_t bytes;         ///< 0: default grant of the device
  uint64_t devices;
  uint32_t lanes, capabilities;
  int32_t priority;
  berthi_group *group;
  berth_lanes *lane_set;
  bool lanes_entered;     ///< a caller-managed lane set that must be left
  bool queued;            ///< it was queued: whoever decides ends it
  bool no_wait;           ///< refuse with `contended` instead of queueing
  // Atomic: the admission word, and the event set after it.
  berthi_atomic32 state;
  berthi_event decided;
  // Under the admission lock.
  berthi_link link;
  berthi_timer timer;
  berthi_request *after; ///< chain of what is to be told after unlock
  uint32_t why;          ///< reasons seen so far
  uint32_t overtakes;
  uint32_t barrier;      ///< device it blocks, or BERTHI_NO_BARRIER
  uint64_t held_by_group; ///< scan number in which its group held it
  int64_t granted_at;
  // Written before the decision, constant after it (as exec->grant).
  berthi_atomic32 refusal; ///< berthi_reason; relaxed: published by the word
};

/// Work that must wait for the unlock: who was decided, in order. Filled under the lock, run by berthi_after_run without it.
typedef struct berthi_after {
  berthi_request *first, **last;
} berthi_after;

// ---- cancel tokens ---------------------------------------------------------------------------------------------------------------------------

/// A request or execution that follows a caller's token. Under the token's lock.
typedef struct berthi_follower {
  berthi_link link;
  berth_cancel *token;        ///< NULL: follows none
  berth_attempt *attempt;     ///< who is cancelled: an attempt,
  berthi_request *request;    ///< or the request of a scoped entry
} berthi_follower;

struct berth_cancel {
  berthi_core *core;
  berth_attempt *attempt; ///< the attempt whose token this is, or NULL
  berthi_atomic32 refs;   ///< of a token without attempt
  berthi_atomic32 cause;  ///< berth_cancel_cause; the highest rank that fired
  berthi_mutex lock;      ///< followers and hook
  berthi_link followers;
  berth_cancel_fn hook;
  void *hook_arg;
  bool hook_scheduled, hook_running;
  uint64_t hook_thread;
  berthi_event hook_idle;
  berthi_note note;
};

// ---- executions --------------------------------------------------------------------------------------------------------------------------------

/// Shared by the children of one execution. Counted by each child and by the root.
typedef struct berthi_family {
  berthi_atomic32 refs;
  berthi_atomic32 word; ///< top bit: ended; rest: children inside an operation
  berthi_event idle;
  berth_exec *root;
} berthi_family;
#define BERTHI_FAMILY_ENDED 0x80000000u

struct berth_exec {
  // Constant after admission.
  berthi_core *core;
  berth_exec *root;        ///< itself, or the execution whose child this is
  berthi_family *family;   ///< of a child; of a root once it has children
  berth_attempt *attempt;  ///< or NULL
  berthi_request *request; ///< of the root
  berth_cache *cache;
  uint64_t id;
  int64_t deadline;
  uint32_t epoch;          ///< fork epoch
  // Atomic.
  berthi_atomic32 cancel;  ///< berth_cancel_cause seen by operations
  berthi_atomic64 user_entry; ///< thread inside berth_exec_run, 0: none
  berthi_atomic64 user;    ///< thread inside an operation, 0: none (EXE-1)
  berthi_atomic32 ended;   ///< the handle has been released
  // Owned by the thread that uses it.
  uint64_t operations, bytes_moved, fragments;
  const char *operation;
  // Root only.
  berthi_domain domain;
  berthi_atomic64 charged; ///< bytes of the domain's use that berth_exec_charge put there
  berthi_grant grant;
  berthi_affinity affinity;
  berthi_follower follower;
  int64_t since;
  int64_t cancelled_at;
  berthi_link link;        ///< live executions (admission lock); unlinked for grants on stripes
  berthi_timer timer;      ///< deadline of an execution without attempt
  // Grow (admission lock).
  berthi_link grow_link;
  uint64_t grow_bytes;
  uint64_t grow_sequence;
  bool grow_safe;          ///< of the deadlock check
  berthi_atomic32 grow_state; ///< 0 none, 1 waiting, 2 granted, else 3 + berthi_reason
  berthi_event grow_event;
  bool on_heap;            ///< a child, or a held execution without attempt
};

/// One scoped entry of a thread: the record that survives a longjmp (USR-1).
typedef struct berthi_entry {
  struct berthi_entry *outer;
  berthi_core *core;
  berth_exec *exec;
  uintptr_t frame;        ///< address in the stack frame that made the entry
  bool own;               ///< it admitted the execution and releases it
  bool reported;          ///< it holds the owner handle of its execution's attempt, and a receiver
  berthi_request request; ///< of an entry without a report
  berth_exec storage;
} berthi_entry;

// ---- attempts ----------------------------------------------------------------------------------------------------------------------------------

struct berth_admission {
  berthi_request request;
  berthi_follower follower;
  berthi_atomic32 handle; ///< 1 while the caller holds the handle
  // Notification (attempt lock).
  int fd;
  berth_admission_fn fn;
  void *arg;
  bool asked, told;
  berthi_note note;
  void *activity;
  void (*activity_release)(void *activity);
  bool permit; ///< a device permit of its own is held (not a stripe's)
};

struct berth_completion {
  berthi_atomic32 receivers;
  berthi_event sealed;
  berthi_note note; ///< a late notification
  // Notification (attempt lock).
  int fd;
  berth_completion_fn fn;
  void *arg;
  bool asked, told;
};

typedef struct berthi_recorded {
  int64_t time, value;
  char name[32];
} berthi_recorded;

struct berth_report {
  berthi_link abandoned; ///< the report is its own queue node (ATT-6)
  uint64_t generation;
  uint64_t execution_id;
  int64_t begun_at, plan_started_at, plan_finished_at, submitted_at, granted_at, taken_at, cancelled_at, released_at, sealed_at;
  berth_disposition disposition;
  berth_outcome outcome;
  berthi_reason reason;     ///< of the cause, NONE after a success
  berth_status cause_code;
  const char *cause_reason;
  uint32_t cause_facts;
  berth_fact facts[BERTH_ERROR_FACTS];
  char *cause_message;      ///< heap, or NULL: the reason's summary
  berth_cancel_cause cancel_cause;
  uint32_t why, overtakes, device, lanes;
  int64_t queued_for;
  uint64_t bytes_granted, bytes_peak, bytes_held, operations, bytes_moved, fragments;
  int64_t cancel_latency;
  berth_cleanup cleanup;
  berth_capacity capacity;
  berth_health health_after;
  bool summary_only;
  char device_name[BERTH_DEVICE_NAME];
  char plan[96];
  char group[BERTH_GROUP_NAME];
};

struct berth_attempt {
  // Constant after begin.
  berthi_core *core;
  uint64_t id;
  uint32_t epoch;
  uint32_t stripe;          ///< whose parked observation permit this is, or BERTHI_NO_STRIPE
  int64_t deadline;
  berthi_group *group;
  char *query_id, *trace_context; ///< heap or NULL
  uint32_t max_events;
  // Atomic.
  berthi_atomic32 refs;
  berthi_atomic32 state;    ///< BERTHI_ATTEMPT_*
  berthi_atomic32 decision; ///< 0, or 1 + berth_outcome: the first terminal decision
  berthi_atomic32 hooked;   ///< 1: it may be in the core's list of hooked attempts
  bool plan_refused;        ///< planning was to start while the backend closes (SES-4); the owner's
  bool moved;               ///< counted in the core though it began on a stripe
  berthi_stat cancelled_at; ///< when the token fired first; 0: not
  // Attempt lock.
  berthi_mutex lock;
  berthi_recorded *events;
  uint32_t event_count, events_lost;
  // Admission lock.
  berthi_link link;         ///< attempts that no stripe covers; of one that a stripe covers: hooked attempts
  berthi_timer timer;       ///< deadline
  // Parts.
  berth_cancel cancel;
  berth_admission admission;
  berth_completion completion;
  berth_exec exec;
  berth_report report;
  berthi_note note;         ///< what is left after the seal, when it must run on the notifier
  berthi_note deadline_note, close_note, overflow_note;
};

// ---- stripes -------------------------------------------------------------------------------------------------------------------------------------

/// Permits and one default grant parked for the threads of one stripe, so that threads do not share a word while nobody waits (stripe.c).
/// Words: low two bits BERTHI_STRIPE_EMPTY, PARKED or BUSY; above them how often it was taken.
#define BERTHI_STRIPE_COUNTED 3u ///< of an observation word: BUSY, but its attempt is sealed and counted in the core
typedef struct berthi_stripe {
  berthi_atomic64 grant;       ///< one device permit and one grant of the default shape
  berthi_atomic64 observation; ///< one observation permit
  // Constant while `grant` is not EMPTY; written under the admission lock.
  berthi_atomic32 device; ///< read by snapshots, too
  uint32_t lane;
  berthi_stat bytes;
  // Published by the holder, for close reports and why.
  berthi_stat holder_attempt, holder_since;
  _Atomic(void *) spare;       ///< a free attempt block, or NULL
  berthi_stat next_id;
  // Written by the holder of `observation` inside `sequence`.
  berthi_atomic32 sequence BERTHI_ALIGNED_LINE;
  berthi_stat duration[BERTHI_HISTOGRAM_BUCKETS];
  berthi_stat duration_sum, duration_max;
} BERTHI_ALIGNED_LINE berthi_stripe;

// ---- counters (admission lock, sequence lock) ----------------------------------------------------------------------------------------------------

typedef struct berthi_counters {
  berthi_stat begun, sealed, open;
  berthi_stat submitted, granted, expired, cancelled, refused, closed, queued;
  berthi_stat live_grants;
  berthi_stat delivered, taken, held, overflowed, abandoned;
  berthi_stat outcomes[5], dispositions[4], refusals[BERTH_REFUSAL_KINDS];
  berthi_stat queue_high, overtakes, overtakes_max;
  berthi_stat grows, grows_refused, shrinks, cancels, quarantines, healed;
  berthi_stat_histogram wait, cancel_latency, duration;
} berthi_counters;

// ---- core ------------------------------------------------------------------------------------------------------------------------------------------

struct berth_session { char unused; };
struct berth_backend { char unused; };

struct berthi_core {
  // Constant after open.
  berth_session session; ///< the one session object: sessions are references to it
  berth_backend backend;
  uint64_t id, generation;
  uint32_t epoch;
  int32_t process;
  int64_t wall_offset; ///< the wall clock less the monotonic one, when it was opened
  berth_backend_options options; ///< with defaults filled in
  uint32_t device_count;
  berthi_device_slot *devices;
  uint32_t stripe_count;

  // Atomic.
  berthi_atomic64 gate BERTHI_ALIGNED_LINE; ///< BCK-5
  berthi_atomic32 slow BERTHI_ALIGNED_LINE; ///< BERTHI_SLOW_ bits; not 0: stripes must not park (stripe.c)
  berthi_atomic32 cancel_all;               ///< close cancels what runs
  berthi_atomic32 unhealthy;                ///< unknown isolation (HLT-1)
  berthi_atomic32 handles BERTHI_ALIGNED_LINE; ///< backend references
  berthi_atomic32 users;                       ///< who can still ask: sessions, and one for all backend references
  berthi_atomic32 refs;                        ///< memory references: handles, sessions, attempts, threads
  berthi_atomic64 state;                       ///< BERTHI_BACKEND_*

  berthi_stripe stripes[BERTHI_STRIPES];

  // Under the admission lock.
  berthi_mutex lock BERTHI_ALIGNED_LINE;
  berthi_atomic64 sequence; ///< odd while the lock is held for change
  berthi_link queue;        ///< requests by key
  uint64_t request_sequence, execution_sequence, attempt_sequence, scan;
  berthi_link executions, attempts, grows;
  berthi_link hooked;       ///< attempts on stripes whose token has a hook, which a close must reach
  berthi_timer *timers;
  berthi_link keeper_notes; ///< what timers left for the keeper to do without the lock
  int64_t keeper_next;      ///< when the keeper looks again by itself
  berthi_group *groups;
  uint32_t group_count;
  berthi_counters counters;
  berthi_after *after; ///< where the holder of the lock collects
  // Close (lock).
  uint64_t timed_out_waits; ///< close waits whose deadline passed
  berthi_timer cancel_timer;
  berthi_stat queued_ended, late_successes, deadlines_elapsed;
  berthi_atomic64 activities_pending;

  // Abandoned reports (admission lock).
  berthi_link abandoned;
  uint32_t abandoned_count, abandoned_whole;

  // Keeper, notifier, telemetry.
  berthi_atomic32 notifier_leave; ///< the keeper has nothing left for the notifier
  berthi_event keeper_wake, closed_event, notifier_wake, telemetry_wake;
  berthi_mutex notifier_lock;
  berthi_link notes;
  bool notifier_stop, notifier_started;
  berthi_atomic64 notifier_thread;
  berthi_atomic32 telemetry_stop;
  berthi_atomic32 telemetry_device; ///< 1 + index of the device whose call the telemetry thread is inside, 0: none (telemetry.c)
  berthi_mutex telemetry_lock;
};

static inline berthi_core *berthi_core_of_session(const berth_session *session) {
  return BERTHI_CONTAINER((uintptr_t)session, berthi_core, session);
}
static inline berthi_core *berthi_core_of_backend(const berth_backend *backend) {
  return BERTHI_CONTAINER((uintptr_t)backend, berthi_core, backend);
}

// core.c
/// Locks for change: the sequence becomes odd; decisions are collected in `after`.
void berthi_lock(berthi_core *core, berthi_after *after) BERTHI_ACQUIRE(core->lock);
/// The same within a deadline.
/// Unlocks, then tells everybody in `after`.
void berthi_unlock(berthi_core *core, berthi_after *after) BERTHI_RELEASE(core->lock);
void berthi_core_retain(berthi_core *core);
void berthi_core_release(berthi_core *core);
/// One user less; after the last one nobody can take abandoned reports any more, and they go.
void berthi_core_leave(berthi_core *core);
/// The error `forked`.
berth_status berthi_core_fail_forked(const berthi_core *core, berth_error *err);
/// backend_closing or backend_closed, by the state.
berthi_reason berthi_core_closing_reason(berthi_core *core);
berth_status berthi_core_fail_closing(berthi_core *core, berth_error *err);
/// Looks again at whether stripes may park, and reclaims what is parked when not (rerunning the scan). Part of every unlock.
void berthi_core_update_slow_locked(berthi_core *core) BERTHI_REQUIRES(core->lock);
void berthi_trace_call(const berthi_core *core, const char *phase, bool begin, uint64_t id);
static inline void berthi_trace(const berthi_core *core, const char *phase, bool begin, uint64_t id) {
  if (BERTHI_UNLIKELY(core->options.trace != NULL)) berthi_trace_call(core, phase, begin, id);
}
void berthi_log(const berthi_core *core, berth_log_level level, const char *format, ...) __attribute__((format(printf, 3, 4)));
static inline bool berthi_core_forked(const berthi_core *core) { return BERTHI_UNLIKELY(core->epoch != berthi_fork_epoch()); }
static inline berth_status berthi_core_check_fork(const berthi_core *core, berth_error *err) {
  return berthi_core_forked(core) ? berthi_core_fail_forked(core, err) : BERTH_OK;
}
void berthi_stat_record(berthi_stat_histogram *histogram, int64_t nanoseconds);

// timer.c
void berthi_timer_arm_locked(berthi_core *core, berthi_timer *timer, int64_t at) BERTHI_REQUIRES(core->lock);
void berthi_timer_disarm_locked(berthi_core *core, berthi_timer *timer) BERTHI_REQUIRES(core->lock);
/// Fires what is due; returns the next time, or BERTH_NO_DEADLINE.
int64_t berthi_timers_run_locked(berthi_core *core, int64_t now) BERTHI_REQUIRES(core->lock);

// stripe.c
static inline uint32_t berthi_stripe_index(const berthi_core *core) { return berthi_thread_self()->stripe % core->stripe_count; }
/// Takes what is parked: PARKED -> BUSY. The caller has seen the gate open, which is where the taking linearizes.
bool berthi_stripe_take(berthi_atomic64 *word);
/// Takes the parked grant of the calling thread's stripe for `exec`, and its device permit with it.
bool berthi_stripe_take_grant(berthi_core *core, berth_exec *exec);
/// Gives the grant of `exec` back to its stripe, or to ledger and gate when somebody waits or the backend closes.
void berthi_stripe_give_grant(berthi_core *core, berth_exec *exec);
/// Parks the grant of a slow execution, with its device permit, on the calling thread's stripe; false when it may not.
bool berthi_stripe_park_locked(berthi_core *core, const berthi_grant *grant) BERTHI_REQUIRES(core->lock);
/// Takes a grant off its stripe into the slow books, without ending it (grow, shrink): BUSY -> EMPTY.
void berthi_stripe_move_locked(berthi_core *core, berth_exec *exec) BERTHI_REQUIRES(core->lock);
/// Observation permits: true when the stripe's was taken; giving parks it again or gives it to the gate.
bool berthi_stripe_take_observation(berthi_core *core, uint32_t *out_stripe);
void berthi_observation_give(berthi_core *core, uint32_t stripe);
/// Reclaims every parked grant into its ledger and every parked permit into the gate; true when a grant came back.
bool berthi_stripes_reclaim_locked(berthi_core *core) BERTHI_REQUIRES(core->lock);
void berthi_stripes_free_spares(berthi_core *core);

// ledger.c
/// Bytes that a new grant could get on the device now.
uint64_t berthi_ledger_free(const berthi_ledger *ledger);
/// Whether more is promised, parked grants included, than external use leaves: nothing may be granted from a stripe (LED-5).
bool berthi_ledger_over(const berthi_ledger *ledger);
/// The most that the device could ever grant.
uint64_t berthi_ledger_most(const berthi_ledger *ledger);
void berthi_ledger_commit_locked(berthi_core *core, berthi_request *request, uint32_t device) BERTHI_REQUIRES(core->lock);
/// Takes a grant out of its ledger and its group. `to`: where the bytes go.
void berthi_ledger_return_locked(berthi_core *core, const berthi_grant *grant, berth_capacity to) BERTHI_REQUIRES(core->lock);
void berthi_ledger_check_locked(berthi_core *core) BERTHI_REQUIRES(core->lock); ///< LED-1, LED-4

// queue.c
/// Puts the request in its place by key.
void berthi_queue_insert_locked(berthi_core *core, berthi_request *request) BERTHI_REQUIRES(core->lock);
void berthi_queue_remove_locked(berthi_core *core, berthi_request *request) BERTHI_REQUIRES(core->lock);
/// Grants whatever can be granted, in order; each decision goes to `core->after` (ADM-6, ADM-7).
void berthi_scan_locked(berthi_core *core) BERTHI_REQUIRES(core->lock);
/// Tries to grant a new request before which nobody waits, taking parked grants back for it.
bool berthi_grant_at_once_locked(berthi_core *core, berthi_request *request) BERTHI_REQUIRES(core->lock);
/// Ends requests that no device in service could ever serve (HLT-1).
void berthi_refuse_unserved_locked(berthi_core *core) BERTHI_REQUIRES(core->lock);
/// OK, or why the request can never be granted by any device in service.
berthi_reason berthi_request_servable_locked(berthi_core *core, const berthi_request *request, uint64_t *out_most) BERTHI_REQUIRES(core->lock);
/// Why it waits, whoever is before it left aside: for a report whose request the scan did not come to.
uint32_t berthi_request_obstacles_locked(berthi_core *core, const berthi_request *request) BERTHI_REQUIRES(core->lock);
/// Why it waits (ADM-9): mask; marks the devices it waits for in `out_devices`.
uint32_t berthi_request_why_locked(berthi_core *core, const berthi_request *request, uint64_t *out_devices, uint32_t *out_ahead) BERTHI_REQUIRES(core->lock);

// request.c (decisions)
/// Decides: swaps the word, counts, removes it from the queue and its timer, and chains it in `core->after`. False when another decision won.
bool berthi_request_decide_locked(berthi_core *core, berthi_request *request, uint32_t to, berthi_reason reason) BERTHI_REQUIRES(core->lock);
/// Submits: refuses, grants, or queues.
void berthi_submit_locked(berthi_core *core, berthi_request *request, int64_t now) BERTHI_REQUIRES(core->lock);
/// Checks what a caller asks; fills a request with it and the defaults, retaining the lane set; drops the lane set again.
berth_status berthi_request_check(const berthi_core *core, const berth_request *request, berth_error *err);
void berthi_request_fill(berthi_core *core, berthi_request *request, const berth_request *asked);
void berthi_request_drop_lanes(berthi_request *request);
void berthi_request_release_lanes(berthi_request *request); ///< of a request that entered one
static inline void berthi_request_leave_lanes(berthi_request *request) {
  if (BERTHI_UNLIKELY(request->lanes_entered)) berthi_request_release_lanes(request);
}
/// Submits an attempt's admission; `no_wait`: refuse with `contended` what would queue.
berth_status berthi_admit(berthi_core *core, berth_attempt *attempt, const berth_request *request, bool no_wait, berth_admission **out_admission,
                          berth_error *err);
/// Cancels a request that is queued or granted and untaken, or the execution that took it.
void berthi_request_cancel(berthi_request *request, berth_cancel_cause cause);
bool berthi_request_take(berthi_request *request);
bool berthi_request_return(berthi_request *request);
void berthi_end_queue_locked(berthi_core *core) BERTHI_REQUIRES(core->lock);
void berthi_after_run(berthi_core *core, berthi_after *after);
berth_status berthi_refusal_error(const berthi_request *request, berth_error *err);
/// The same without its message, which berthi_refusal_say makes of the facts when somebody reads it: a refusal formats no text for nobody.
void berthi_refusal_facts(const berthi_request *request, berth_error *err);
void berthi_refusal_say(berthi_reason reason, berth_error *err);
/// Tells the descriptor and the callback of an admission that it is decided, and sets its event (ADM-10).
void berthi_admission_tell(berth_attempt *attempt);

// attempt.c, seal.c
berth_attempt *berthi_attempt_retain(berth_attempt *attempt);
void berthi_attempt_unref(berth_attempt *attempt);
/// OPEN -> SUBMITTED: the single finalizer moves into the admission.
bool berthi_attempt_submit(berth_attempt *attempt);
bool berthi_attempt_decide(berth_attempt *attempt, berth_outcome outcome, const berth_error *cause, berthi_reason reason);
void berthi_attempt_seal(berth_attempt *attempt);
/// Everything after the seal: callbacks, observation permit, activity lease (EXE-2). `inline_ok` as in USR-2: else on the notifier.
void berthi_attempt_deliver(berth_attempt *attempt, bool inline_ok);
/// Ends an attempt whose admission was refused, cancelled, expired, closed or returned.
void berthi_attempt_end_refused(berth_attempt *attempt, bool inline_ok);
void berthi_attempt_cancel(berth_attempt *attempt, berth_cancel_cause cause);
/// Puts an attempt that a stripe covers where a close finds it.
void berthi_attempt_hooked(berth_attempt *attempt);
void berthi_report_set_cause(berth_report *report, berthi_reason reason, const berth_error *cause);
void berthi_abandoned_overflow(berthi_note *note);
/// Takes every held report out of the queue, into `gone`; frees those without the lock.
void berthi_abandoned_drop_locked(berthi_core *core, berthi_link *gone) BERTHI_REQUIRES(core->lock);
void berthi_abandoned_free(berthi_link *gone);
void berthi_abandon_locked(berthi_core *core, berth_attempt *attempt) BERTHI_REQUIRES(core->lock);
void berthi_report_drop_detail(berth_attempt *attempt);

// cancel.c
void berthi_cancel_init(berth_cancel *cancel, berthi_core *core, berth_attempt *attempt);
void berthi_cancel_follow(berth_cancel *token, berthi_follower *follower);
void berthi_cancel_leave(berthi_follower *follower); ///< of a follower that follows
static inline void berthi_cancel_unfollow(berthi_follower *follower) {
  if (BERTHI_UNLIKELY(follower->token != NULL)) berthi_cancel_leave(follower);
}
/// Raises the cause and schedules the hook; true when it was the first.
bool berthi_cancel_raise(berth_cancel *cancel, berth_cancel_cause cause);

// exec.c, release.c
void berthi_exec_prepare(berth_exec *exec, berthi_core *core, berth_attempt *attempt, berthi_request *request, int64_t deadline);
/// Ends an execution in the order of EXE-2; `outcome` counts when no decision was made before. Returns the clean-up's status.
berth_status berthi_exec_end(berth_exec *exec, berth_outcome outcome, const berth_error *cause, bool inline_ok, berth_error *err);
void berthi_exec_granted(berth_exec *exec);
/// Why an execution that ends now is cancelled, with the error that says so; BERTH_CANCEL_NONE when it is not.
uint32_t berthi_exec_end_cause(berth_exec *exec, berth_error *why);
/// OK while the handle is in use by its process.
berth_status berthi_exec_usable(const berth_exec *exec, berth_error *err);
/// Keeps the root alive around a call on a child; a check only on a root.
berth_status berthi_exec_enter(berth_exec *exec, berth_error *err);
void berthi_exec_leave(berth_exec *exec);
void berthi_family_close(berth_exec *root); ///< of a root that has children
static inline void berthi_family_end(berth_exec *root) {
  if (BERTHI_UNLIKELY(root->family != NULL)) berthi_family_close(root);
}
void berthi_child_release(berth_exec *child);
/// Fills who holds something on the devices of the mask (all attempts that hold a permit, too, with `permits`).
void berthi_holders_locked(berthi_core *core, uint64_t devices, bool permits, berth_holder *out, uint32_t capacity, uint32_t *count, uint32_t *total,
                           uint64_t *bytes) BERTHI_REQUIRES(core->lock);
void berthi_exec_cancel(berth_exec *exec, berth_cancel_cause cause);
void berthi_grow_scan_locked(berthi_core *core) BERTHI_REQUIRES(core->lock);
bool berthi_grow_blocks_locked(const berthi_core *core, uint32_t device) BERTHI_REQUIRES(core->lock);
void berthi_grow_end_locked(berthi_core *core, berth_exec *exec, uint32_t state) BERTHI_REQUIRES(core->lock);

// user_code.c: the only file that calls user code (USR-1)
/// `crashed(crashed_arg)` (NULL: nothing) does what the caller would have done next, when the callback ends its thread instead of returning.
void berthi_user_cancelled(berthi_core *core, berth_cancel_fn fn, void *arg, berth_cancel_cause cause, void (*crashed)(void *), void *crashed_arg);
void berthi_user_completed(berthi_core *core, berth_completion_fn fn, void *arg, berth_report *report, void (*crashed)(void *), void *crashed_arg);
void berthi_user_admitted(berthi_core *core, berth_admission_fn fn, void *arg, berth_admission_state state, void (*crashed)(void *), void *crashed_arg);
/// Runs the tasks on the caller's own threads; non-zero: they could not.
int berthi_user_execute(berthi_core *core, berth_executor_fn executor, void *executor_arg, uint64_t count, void (*body)(void *, uint64_t), void *arg);
void berthi_user_release(berthi_core *core, void (*release)(void *), void *activity, void (*crashed)(void *), void *crashed_arg);
/// Calls fn(exec, arg); `crashed(crashed_arg)` runs when an unwind leaves it, which then goes on.
intptr_t berthi_user_run(berth_run_fn fn, berth_exec *exec, void *arg, void (*crashed)(void *), void *crashed_arg);

// notifier.c
/// Runs the note on the notifier thread; on the caller's stack once the notifier has ended.
void berthi_notify(berthi_core *core, berthi_note *note);
void berthi_notifier_main(void *core);
/// The notifier's thread is ending inside a callback: another one goes on in its place.
void berthi_notifier_succeed(berthi_core *core);
void berthi_write_fd(int fd);

// keeper.c, close.c
void berthi_keeper_main(void *core);
void berthi_close_signal(berthi_core *core);
/// Called after a permit went back while the gate is closed.
void berthi_close_nudge(berthi_core *core);
void berthi_attempt_close_note(berthi_note *note);

// health.c, device_thread.c, telemetry.c
void berthi_health_fault_locked(berthi_core *core, berthi_device_slot *slot, berthi_fault_class fault, const berth_error *cause) BERTHI_REQUIRES(core->lock);
static inline bool berthi_slot_serves(const berthi_device_slot *slot) { return berthi_get(&slot->health) == BERTH_HEALTH_OK; }
/// In service, or on its way back within a bounded time: waiters stay (SUSPECT).
static inline bool berthi_slot_may_serve(const berthi_device_slot *slot) {
  uint64_t health = berthi_get(&slot->health);
  return health == BERTH_HEALTH_OK || health == BERTH_HEALTH_SUSPECT;
}
void berthi_health_resolve(berthi_device_slot *slot);
void berthi_health_probe(berthi_device_slot *slot);
void berthi_device_main(void *slot);
void berthi_telemetry_main(void *core);

// lease.c
typedef struct berthi_lease_info { uint64_t backend_id, generation; int state; } berthi_lease_info;
berth_status berthi_lease_take(const char *identity, const char *name, berthi_core *core, char forced_by[64], berth_error *err);
void berthi_lease_state(const char *identity, uint64_t backend_id, int state); ///< 1 draining, 2 leaked
void berthi_lease_give(const char *identity, uint64_t backend_id);

// entry.c
berthi_entry *berthi_entry_push(berthi_core *core, uintptr_t frame);
void berthi_entry_pop(berthi_entry *entry);
/// Ends what the entry holds as crashed, and the entry: user code left it without a return.
void berthi_entry_crash(berthi_entry *entry, bool inline_ok);
void berthi_entries_exit(berthi_thread_state *self);
/// OK, `reentered`, or `resource_poisoned` for the calling thread at the frame.
berth_status berthi_entry_check(berthi_core *core, uintptr_t frame, berth_error *err);
/// Whether the calling thread is inside an entry or a callback of the backend.
bool berthi_entry_inside(berthi_core *core);

// group.c
/// Finds or makes the group of a caller's name (NULL: none, no group). Fails: INVALID_ARGUMENT, `group_limit`.
berth_status berthi_group_named(berthi_core *core, const char *name, berthi_group **out, berth_error *err);
/// Finds or makes a group; NULL when no more can be named.
berthi_group *berthi_group_find_locked(berthi_core *core, const char *name, bool make) BERTHI_REQUIRES(core->lock);

// lanes.c
/// Lanes that the request may use on the device; false when none (another device's set).
bool berthi_lanes_allowed(const berthi_core *core, const berthi_request *request, uint32_t device, berthi_lanemask *out);
bool berthi_lanes_caller_managed(const berth_lanes *lanes); ///< false for NULL

// metrics.c
void berthi_metrics_read(const berthi_core *core, berth_metrics *out);

#endif
