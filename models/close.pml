// SPDX-License-Identifier: Apache-2.0
// The close (CLS-1 to CLS-4; src/runtime/close.c, keeper.c, device_thread.c): signal, end of the queue, clean-up of each device on its own thread,
// CLOSED; and that no wake-up is lost on the way.
//
// check: two attempts, one device | -DATTEMPTS=2 | -DSAFETY |
// check: one attempt, two devices | -DDEVICES=2 | -DSAFETY |
// check: one attempt, one device, two closers | -DCLOSERS=2 | -DSAFETY |
// refute: wake-up cleared after the look | -DMUTANT_LOST_WAKE | -DSAFETY |
// refute: giver looks at the closed bit before it gives | -DMUTANT_EARLY_LOOK | -DSAFETY |
// refute: clean-up while device permits are out | -DMUTANT_EARLY_CLEANUP | -DSAFETY |
// refute: CLOSED while observation permits are out | -DMUTANT_EARLY_CLOSED | -DSAFETY |
// refute: the limit passes over a clean-up that has just ended | -DMUTANT_BLIND_LIMIT | -DSAFETY |
// refute: waits for every device without a limit | -DMUTANT_NO_LIMIT | -DSAFETY |
// refute: submit that does not look at the closed bit under the lock | -DMUTANT_NO_RECHECK | -DSAFETY |
// refute: the waiter of the close is not told | -DMUTANT_SILENT_CLOSED | -DSAFETY |

#include "words.h"

#ifndef ATTEMPTS
#define ATTEMPTS 1
#endif
#ifndef DEVICES
#define DEVICES 1
#endif
#ifndef CLOSERS
#define CLOSERS 1
#endif
#define LAST (DEVICES - 1)

// The gate: one word, so each touch is one step (gate.pml).
bool closed;
byte devices, observations;

mtype backend = BACKEND_OPEN;
bool waiting[ATTEMPTS], ended[ATTEMPTS];

// What becomes of a device; under the lock.
mtype = { LIVE, CLEANING, RELEASED, LEAKED };
mtype slot[DEVICES] = LIVE;
bool wanted[DEVICES]; // its thread's wake-up: clean up now

// Events: set by anybody, cleared by the one who waits for it.
bool keeper_wake, closed_event;

// Ghosts.
byte open, running, leases = DEVICES, over;

// After a permit went back: the word as it was left says whether the keeper waits for it.
inline give(permits) {
#ifdef MUTANT_EARLY_LOOK
  nudge = closed;
  atomic { assert(permits > 0); permits-- };
#else
  atomic { assert(permits > 0); permits--; nudge = closed };
#endif
  if
  :: nudge -> keeper_wake = true
  :: else
  fi
}

active [ATTEMPTS] proctype attempt() {
  bool won, nudge;
  byte me = _pid;
  atomic {
    if
    :: !closed -> observations++; open++; won = true; assert(backend != BACKEND_CLOSED)
    :: else
    fi
  };
  if
  :: won ->
    atomic {
      won = false;
      if
      :: !closed -> devices++; won = true; assert(backend != BACKEND_DEVICES_QUIESCENT)
      :: else
      fi
    };
    if
    :: won ->
      LOCK;
      if
#ifndef MUTANT_NO_RECHECK
      :: closed -> ended[me] = true
#endif
      :: else ->
        if
        :: skip                  // granted at once
        :: waiting[me] = true    // queued behind what ends only after the close
        fi
      fi;
      UNLOCK;
      !waiting[me];
      if
      :: ended[me]
      :: else -> // no device is touched once its clean-up may have begun
        atomic { running++; assert(slot[0] == LIVE && slot[LAST] == LIVE) };
        atomic { running--; assert(slot[0] == LIVE && slot[LAST] == LIVE) }
      fi;
      give(devices)
    :: else
    fi;
    atomic { open-- }; // sealed
    give(observations)
  :: else
  fi;
  over++
}

// Closes, or releases the last handle, which is the same; then waits until CLOSED.
active [CLOSERS] proctype closer() {
  closed = true;
  keeper_wake = true;
  closed_event;
  assert(backend == BACKEND_CLOSED && open == 0 && observations == 0 && devices == 0);
  over++
}

// The thread of a device. Its clean-up proves completion, fails to, or hangs.
active [DEVICES] proctype device() {
  byte me = _pid - ATTEMPTS - CLOSERS;
  bool proven;
end:
  wanted[me];
  assert(running == 0 && devices == 0);
  if
  :: proven = true
  :: proven = false
  :: goto hung
  fi;
late:
  LOCK;
  if
  :: proven -> slot[me] = RELEASED; leases-- // also after the limit: late, and counted
  :: else -> slot[me] = LEAKED
  fi;
  UNLOCK;
  keeper_wake = true;
  goto out;
hung:
  do
  :: proven = true; goto late
  :: break
  od;
end_hung:
  false;
out:
  skip
}

active proctype keeper() {
  byte i;
  bool all;
  do
  :: keeper_wake ->
#ifndef MUTANT_LOST_WAKE
    keeper_wake = false;
#endif
    if
    :: closed && backend == BACKEND_OPEN ->
      LOCK;
      atomic { EDGE(BACKEND, backend, OPEN, CLOSING) };
      for (i : 0 .. ATTEMPTS - 1) {
        atomic { ended[i] = ended[i] || waiting[i]; waiting[i] = false }
      };
      i = 0;
      UNLOCK
    :: else
    fi;
    if
#ifdef MUTANT_EARLY_CLEANUP
    :: backend == BACKEND_CLOSING && slot[0] == LIVE ->
#else
    :: backend == BACKEND_CLOSING && slot[0] == LIVE && devices == 0 ->
#endif
      LOCK;
      for (i : 0 .. DEVICES - 1) {
        slot[i] = CLEANING;
        wanted[i] = true
      };
      i = 0;
      UNLOCK
    :: else
    fi;
    LOCK;
    all = slot[0] != LIVE && slot[0] != CLEANING && slot[LAST] != LIVE && slot[LAST] != CLEANING;
    if
    :: backend == BACKEND_CLOSING && all -> atomic { EDGE(BACKEND, backend, CLOSING, DEVICES_QUIESCENT) }
    :: else
    fi;
    all = false;
    UNLOCK;
    if
#ifdef MUTANT_EARLY_CLOSED
    :: backend == BACKEND_DEVICES_QUIESCENT ->
#else
    :: backend == BACKEND_DEVICES_QUIESCENT && observations == 0 ->
#endif
      LOCK;
      atomic { EDGE(BACKEND, backend, DEVICES_QUIESCENT, CLOSED); assert(open == 0) };
      UNLOCK;
#ifndef MUTANT_SILENT_CLOSED
      closed_event = true;
#endif
      break
    :: else
    fi;
#ifdef MUTANT_LOST_WAKE
    keeper_wake = false
#endif
#ifndef MUTANT_NO_LIMIT
  :: backend == BACKEND_CLOSING && slot[0] != LIVE && !keeper_wake ->
    // The limit of the clean-up has passed: what is not done is leaked, that device only.
    LOCK;
    for (i : 0 .. DEVICES - 1) {
      if
#ifdef MUTANT_BLIND_LIMIT
      :: slot[i] != LIVE -> slot[i] = LEAKED
#else
      :: slot[i] == CLEANING -> slot[i] = LEAKED
#endif
      :: else
      fi
    };
    i = 0;
    UNLOCK;
    keeper_wake = true
#endif
  od;
  over == ATTEMPTS + CLOSERS;
  LOCK;
  assert(leases == (slot[0] == LEAKED -> 1 : 0) + (LAST > 0 && slot[LAST] == LEAKED -> 1 : 0)) // a leaked device keeps its lease, the others gave theirs
  UNLOCK
}
