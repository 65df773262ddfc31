// SPDX-License-Identifier: Apache-2.0
// Parked permits and grants (src/runtime/stripe.c, core.c) beside the queue and the close: a thread enters and leaves by one word while nobody waits,
// and nobody waits for, or closes over, what is parked.
//
// check: an attempt and a run on one stripe, one slot, close | -DRUNS=1 | -DSAFETY |
// check: two attempts that admit nothing, the first twice, one stripe, close | -DADMIT=0 -DROUNDS=2 | -DSAFETY |
// check: two runs, the first twice, one stripe, one slot, close | -DRUNS=2 -DROUNDS=2 | -DSAFETY |
// check: two runs on two stripes, one slot, close | -DSTRIPES=2 -DRUNS=2 | -DSAFETY |
// check: two runs on one stripe, two slots, close | -DSLOTS=2 -DRUNS=2 | -DSAFETY |
// check: three runs on two stripes, one slot, no close | -DUSERS=3 -DSTRIPES=2 -DRUNS=3 -DROUNDS=2 -DCLOSE=0 | -DSAFETY |
// check: two attempts on two stripes, one slot, the first twice, no close | -DSTRIPES=2 -DROUNDS=2 -DCLOSE=0 | -DSAFETY |
// refute: parks without looking at slow again | -DMUTANT_NO_RECHECK -DSTRIPES=2 -DRUNS=2 -DROUNDS=2 -DCLOSE=0 | -DSAFETY |
// refute: the same while it closes | -DMUTANT_NO_RECHECK -DRUNS=2 -DROUNDS=2 | -DSAFETY |
// refute: parks an observation permit without looking at the gate again | -DMUTANT_NO_GATE_RECHECK -DADMIT=0 | -DSAFETY |
// refute: enters without looking at the gate | -DMUTANT_NO_GATE -DADMIT=0 -DROUNDS=2 | -DSAFETY |
// refute: reclaims before slow is set | -DMUTANT_LATE_SLOW -DSTRIPES=2 -DRUNS=2 -DROUNDS=2 -DCLOSE=0 | -DSAFETY |
// refute: closing does not make it slow | -DMUTANT_FAST_CLOSE -DRUNS=2 -DROUNDS=2 | -DSAFETY |
// refute: slow ends while somebody waits | -DMUTANT_EARLY_FAST -DSTRIPES=2 -DRUNS=2 -DROUNDS=2 -DCLOSE=0 | -DSAFETY |
// refute: a return without a scan | -DMUTANT_LOST_WAKE -DSTRIPES=2 -DRUNS=2 -DROUNDS=2 -DCLOSE=0 | -DSAFETY |
// refute: a reclaimed permit of which the keeper is not told | -DMUTANT_SILENT_RECLAIM -DRUNS=2 -DROUNDS=2 | -DSAFETY |
// refute: reclaims by a store | -DMUTANT_BLIND_RECLAIM -DRUNS=2 -DROUNDS=2 | -DSAFETY |

#include "words.h"

#ifndef USERS
#define USERS 2
#endif
#ifndef RUNS
#define RUNS 0 // users that hold no observation permit (RUN-6)
#endif
#ifndef STRIPES
#define STRIPES 1
#endif
#ifndef SLOTS
#define SLOTS 1
#endif
#ifndef ROUNDS
#define ROUNDS 1 // how often the first user comes; the others come once
#endif
#ifndef ADMIT
#define ADMIT 1
#endif
#ifndef CLOSE
#define CLOSE 1
#endif

// The gate: one word, so each touch is one step (gate.pml).
bool closed;
byte devices, observations;

// `slow`: one word with two bits.
bool slow_waiters, slow_closing;
#define SLOW (slow_waiters || slow_closing)

mtype grant[STRIPES] = STRIPE_EMPTY;
mtype observation[STRIPES] = STRIPE_EMPTY;

// Under the admission lock.
byte promised;
bool waiting[USERS], ended[USERS];
#if USERS == 2
#define SOMEBODY_WAITS (waiting[0] || waiting[1])
#else
#define SOMEBODY_WAITS (waiting[0] || waiting[1] || waiting[2])
#endif

bool keeper_wake = CLOSE; // it may look once for reasons of its own

// Ghosts.
byte held;     // promised grants that no word stands for: off the stripes, or between their word and the ledger
byte running;  // users inside an execution
byte open;     // users inside an attempt
byte finished;
bool quiescent, done;

// A permit goes back; the word as it was left says whether the keeper waits for it.
inline give(permits) {
  atomic { assert(permits > 0); permits--; nudge = closed };
  atomic {
    keeper_wake = keeper_wake || nudge;
    nudge = false
  }
}

// What the keeper has reclaimed by itself it need not be told, but everybody reclaims.
inline give_reclaimed(permits) {
#ifdef MUTANT_SILENT_RECLAIM
  atomic { assert(permits > 0); permits-- }
#else
  give(permits)
#endif
}

inline scan_locked() {
  if
  :: closed // the keeper ends the queue
  :: else ->
    atomic {
      for (i : 0 .. USERS - 1) {
        if
        :: waiting[i] && promised < SLOTS -> promised++; held++; waiting[i] = false
        :: else
        fi
      }
      i = 0
    }
  fi
}

inline reclaim_locked() {
  seen_closed = closed;
  for (j : 0 .. STRIPES - 1) {
#ifdef MUTANT_BLIND_RECLAIM
    if
    :: grant[j] == STRIPE_PARKED -> grant[j] = STRIPE_EMPTY; promised--; any = true; give_reclaimed(devices)
    :: else
    fi;
#else
    atomic {
      won = false;
      if
      :: EDGE(STRIPE, grant[j], PARKED, EMPTY); promised--; won = true; any = true
      :: else
      fi
    };
    if
    :: won -> give_reclaimed(devices)
    :: else
    fi;
#endif
    atomic {
      won = false;
      if
      :: seen_closed ->
        if
        :: EDGE(STRIPE, observation[j], PARKED, EMPTY); won = true
        :: else
        fi
      :: else
      fi
    };
    if
    :: won -> give_reclaimed(observations)
    :: else
    fi
  };
  won = false;
  j = 0
}

// Every unlock looks again at whether stripes may park, and reclaims what is parked when not.
inline unlock() {
  any = false;
#ifndef MUTANT_LATE_SLOW
  if
  :: SOMEBODY_WAITS && !slow_waiters -> slow_waiters = true
  :: else
  fi;
#endif
  if
  :: SOMEBODY_WAITS || slow_closing ->
    reclaim_locked();
#ifdef MUTANT_LATE_SLOW
    slow_waiters = slow_waiters || SOMEBODY_WAITS;
#endif
    if
    :: any -> scan_locked()
    :: else
    fi
  :: else
  fi;
  any = false;
  if
#ifdef MUTANT_EARLY_FAST
  :: true -> slow_waiters = false
#else
  :: !SOMEBODY_WAITS -> slow_waiters = false
  :: else
#endif
  fi;
  atomic {
    count = held;
    for (i : 0 .. STRIPES - 1) {
      count = count + (grant[i] != STRIPE_EMPTY -> 1 : 0)
    }
    assert(promised == count);                           // conserved
    assert(promised <= SLOTS && running <= SLOTS);
    assert(!SOMEBODY_WAITS || promised == SLOTS || closed); // nobody waits while it fits (ADM-7)
    i = 0;
    count = 0;
    UNLOCK
  }
}

// A grant that left its word goes back: ledger, scan, permit.
inline return_grant_locked() {
  atomic { promised--; held-- };
#ifndef MUTANT_LOST_WAKE
  scan_locked();
#endif
  unlock();
  give(devices)
}

inline begin_attempt() {
#ifndef MUTANT_NO_GATE
  refused = closed;
#endif
  if
  :: refused
  :: else ->
    atomic {
      if
      :: EDGE(STRIPE, observation[my], PARKED, BUSY); observation_striped = true
      :: else
      fi
    };
    if
    :: observation_striped
    :: else ->
      atomic {
        if
        :: closed -> refused = true
        :: else -> observations++
        fi
      }
    fi
  fi;
  if
  :: refused
  :: else -> atomic { assert(!late && !done); open++ }
  fi
}

inline end_attempt() {
  open--; // sealed
  won = true;
  if
  :: observation_striped -> atomic { EDGE(STRIPE, observation[my], BUSY, PARKED) }
  :: else ->
    won = !closed;
    atomic {
      if
      :: won ->
        if
        :: EDGE(STRIPE, observation[my], EMPTY, PARKED)
        :: else -> won = false
        fi
      :: else
      fi
    };
    if
    :: won
    :: else -> give(observations)
    fi
  fi;
#ifndef MUTANT_NO_GATE_RECHECK
  if
  :: won && closed ->
    atomic {
      won = false;
      if
      :: EDGE(STRIPE, observation[my], PARKED, EMPTY); won = true
      :: else
      fi
    };
    if
    :: won -> give(observations)
    :: else
    fi
  :: else
  fi;
#endif
  observation_striped = false;
  won = false
}

inline admit() {
#ifndef MUTANT_NO_GATE
  refused = closed;
#endif
  if
  :: refused || SLOW
  :: else ->
    atomic {
      if
      :: EDGE(STRIPE, grant[my], PARKED, BUSY); grant_striped = true
      :: else
      fi
    }
  fi;
  if
  :: refused || grant_striped
  :: else ->
    atomic {
      if
      :: closed -> refused = true
      :: else -> devices++
      fi
    };
    if
    :: refused
    :: else ->
      LOCK;
      if
      :: closed -> ended[me] = true
      :: else ->
        if
        :: atomic { !SOMEBODY_WAITS && promised < SLOTS -> promised++; held++ }
        :: else ->
          // What is parked counts as free: it is taken back before anybody waits.
#ifndef MUTANT_LATE_SLOW
          slow_waiters = true;
#endif
          reclaim_locked();
          waiting[me] = true;
          scan_locked()
        fi
      fi;
      unlock();
      !waiting[me];
      refused = ended[me];
      if
      :: refused -> give(devices)
      :: else
      fi
    fi
  fi;
  if
  :: refused
  :: else -> atomic { assert(!late && !quiescent); running++; assert(running <= SLOTS) }
  fi
}

inline end_execution() {
  running--;
  won = false;
  if
  :: !grant_striped ->
    LOCK;
    atomic {
      if
      :: !SLOW && !closed && !SOMEBODY_WAITS ->
        if
        :: EDGE(STRIPE, grant[my], EMPTY, PARKED); held--; won = true // rebooked: the ledger stays
        :: else
        fi
      :: else
      fi
    };
    if
    :: won -> unlock()
    :: else -> return_grant_locked()
    fi
  :: else ->
    if
    :: SLOW ->
      LOCK;
      atomic { EDGE(STRIPE, grant[my], BUSY, EMPTY); held++ };
      return_grant_locked()
    :: else ->
      atomic { EDGE(STRIPE, grant[my], BUSY, PARKED) };
#ifndef MUTANT_NO_RECHECK
      if
      :: SLOW -> // somebody began to wait meanwhile: whoever reclaims it returns it
        atomic {
          if
          :: EDGE(STRIPE, grant[my], PARKED, EMPTY); held++; won = true
          :: else
          fi
        }
      :: else
      fi;
      if
      :: won -> LOCK; return_grant_locked()
      :: else
      fi
#endif
    fi
  fi;
  grant_striped = false;
  won = false
}

active [USERS] proctype user() {
  byte i, j, count, round;
  bool won, any, nudge, seen_closed, refused, late;
  bool grant_striped, observation_striped;
  byte me = _pid;
  byte my = _pid % STRIPES;

  do
  :: round == (me == 0 -> ROUNDS : 1) || refused -> break
  :: else ->
    round++;
    late = closed; // begins after the signal: must fail (ATT-1)
    if
    :: me >= RUNS -> begin_attempt()
    :: else
    fi;
    if
    :: refused
    :: else ->
      if
      :: ADMIT ->
        late = closed;
        admit();
        if
        :: refused
        :: else -> end_execution()
        fi
      :: !ADMIT
      fi;
      if
      :: me >= RUNS -> end_attempt()
      :: else
      fi
    fi
  od;
  finished++
}

active [CLOSE] proctype closer() {
  closed = true;
#ifndef MUTANT_FAST_CLOSE
  slow_closing = true;
#endif
  keeper_wake = true
}

active [CLOSE] proctype keeper() {
  byte i, j, count;
  bool won, any, nudge, seen_closed;
  do
  :: keeper_wake ->
    keeper_wake = false;
    LOCK;
    if
    :: closed ->
      atomic {
        for (i : 0 .. USERS - 1) {
          ended[i] = ended[i] || waiting[i];
          waiting[i] = false
        }
        i = 0
      };
      reclaim_locked();
      atomic {
        if
        :: devices == 0 ->
          assert(promised == 0 && running == 0);
          quiescent = true;
          if
          :: observations == 0 -> assert(open == 0); done = true
          :: else
          fi
        :: else
        fi
      }
    :: else
    fi;
    unlock();
    if
    :: done -> break
    :: else
    fi
  od;
  finished == USERS;
  assert(promised == 0 && held == 0 && devices == 0 && observations == 0)
}

// Without a close everything ends as well, and what is promised is parked: it comes back when asked for.
active [1 - CLOSE] proctype last() {
  byte i, j, count;
  bool won, any, nudge, seen_closed;
  finished == USERS;
  assert(held == 0 && running == 0 && open == 0 && !SOMEBODY_WAITS);
  LOCK;
  slow_waiters = true;
  reclaim_locked();
  unlock();
  assert(promised == 0 && devices == 0)
}
