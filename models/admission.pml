// SPDX-License-Identifier: Apache-2.0
// The admission word and the attempt around it (ADM-1, ADM-2, ATT-4, EXE-2; src/runtime/request.c, attempt.c, seal.c): submit, scan, cancel, expiry,
// loss of the device, close, take and return decide about the same word, and whoever decides ends the attempt in the order of the permits.
//
// check: two requests, cancel and close | -DCANCEL=1 | -DSAFETY |
// check: two requests, expiry and close | -DEXPIRE=1 | -DSAFETY |
// check: two requests, lost device and close | -DLOSE=1 | -DSAFETY |
// check: two requests, an owner that finishes early, close | -DFINISH=1 | -DSAFETY |
// check: two requests, cancel and expiry, no close | -DCANCEL=1 -DEXPIRE=1 -DCLOSE=0 | -DSAFETY |
// refute: a decision by store | -DMUTANT_BLIND_DECISION -DCANCEL=1 | -DSAFETY |
// refute: take by store | -DMUTANT_BLIND_TAKE -DCANCEL=1 | -DSAFETY |
// refute: observation permit before the seal | -DMUTANT_SWAPPED_RELEASE -DCANCEL=1 | -DSAFETY |
// refute: capacity before the seal | -DMUTANT_EARLY_CAPACITY | -DSAFETY |
// refute: seal before the device permit | -DMUTANT_LATE_PERMIT -DCANCEL=1 | -DSAFETY |
// refute: activity lease before the observation permit | -DMUTANT_EARLY_ACTIVITY | -DSAFETY |
// refute: submit that does not look at the closed bit under the lock | -DMUTANT_NO_RECHECK | -DSAFETY |
// refute: submit that does not look at the token under the lock | -DMUTANT_NO_TOKEN -DCANCEL=1 | -DSAFETY |
// refute: enters the queue before its device permit | -DMUTANT_PERMIT_AFTER_QUEUE | -DSAFETY |
// refute: a return without a scan | -DMUTANT_LOST_WAKE -DCLOSE=0 | -DSAFETY |
// refute: two finalizers | -DMUTANT_TWO_FINALIZERS -DFINISH=1 | -DSAFETY |

#include "words.h"

#ifndef CANCEL
#define CANCEL 0
#endif
#ifndef EXPIRE
#define EXPIRE 0
#endif
#ifndef LOSE
#define LOSE 0
#endif
#ifndef FINISH
#define FINISH 0
#endif
#ifndef CLOSE
#define CLOSE 1
#endif

#define REQUESTS 2
#define SLOTS 1

// The gate: one word, so each touch is one step (gate.pml).
bool closed;
byte devices, observations;

mtype word[REQUESTS] = ADMISSION_NEW;
mtype attempt[REQUESTS] = ATTEMPT_OPEN;
bool outcome[REQUESTS]; // fixed: by compare-and-swap, so the first one stays
bool token[REQUESTS];  // the cancel token has fired
bool late[REQUESTS];   // the deadline has passed

// Under the admission lock.
byte promised;
bool lost;             // the device is out of service

chan notes = [REQUESTS] of { byte }; // what others decided is delivered by the notifier (USR-2)

// Ghosts.
byte submitted, granted, refused, cancelled, expired, ended, queued; // MET-1
byte decisions[REQUESTS], seals[REQUESTS];
bool permit[REQUESTS], watched[REQUESTS];
byte begun, sealed, running;
bool cancel_over[REQUESTS];
byte owners_over, over;
bool swept, quiescent, done;

// What holds whenever the lock is free.
inline unlock() {
  atomic {
    assert(submitted == granted + refused + cancelled + expired + ended + queued);
    assert(promised <= SLOTS && running <= promised);
    assert(queued == 0 || closed || promised == SLOTS); // nobody waits while it fits (ADM-7)
    UNLOCK
  }
}

inline count(r, counter) {
  counter++;
  decisions[r]++;
  assert(decisions[r] == 1 && permit[r] && watched[r]) // one decision, with both permits held (ADM-1, ADM-2)
}

// One step: of what happens beside the lock, take and return commute with it.
inline scan_locked() {
  if
  :: closed // the keeper ends the queue
  :: else ->
    atomic {
      for (i : 0 .. REQUESTS - 1) {
        if
        :: promised < SLOTS && !lost ->
          if
          :: EDGE(ADMISSION, word[i], QUEUED, GRANTED); queued--; count(i, granted); promised++
          :: else
          fi
        :: else
        fi
      };
      i = 0
    }
  fi
}

inline give_device(r) {
  atomic { assert(devices > 0 && permit[r]); devices--; permit[r] = false }
}

inline seal(r) {
  atomic {
    EDGE(ATTEMPT, attempt[r], DECIDED, SEALED);
    seals[r]++;
    sealed++;
    assert(seals[r] == 1)
  }
}

// The first outcome stays, later ones are told so (ATT-4); the state is moved by the one finalizer.
inline decide_attempt(r) {
  outcome[r] = true;
  atomic { assert(attempt[r] == ATTEMPT_SUBMITTED); EDGE(ATTEMPT, attempt[r], SUBMITTED, DECIDED) }
}

inline give_observation(r) {
  atomic { assert(observations > 0 && watched[r] && !permit[r]); observations--; watched[r] = false }
}

// After the seal, where user code may run and wait: the destructor of the activity lease may close the backend and wait for it (CLS-3).
inline deliver_inline(r) {
#ifdef MUTANT_EARLY_ACTIVITY
  activity();
  give_observation(r);
#else
  give_observation(r);
  activity();
#endif
}

inline activity() {
  if
  :: CLOSE -> closed = true; done
  :: skip
  fi
}

// Refusal in the order of ADM-2: device permit, seal, then on the notifier the observation permit and the activity lease.
inline end_refused(r) {
#ifdef MUTANT_LATE_PERMIT
  decide_attempt(r);
  seal(r);
  assert(!permit[r]);
  give_device(r);
#else
  give_device(r);
  decide_attempt(r);
#ifdef MUTANT_SWAPPED_RELEASE
  give_observation(r);
#endif
  seal(r);
#endif
#ifndef MUTANT_SWAPPED_RELEASE
  notes ! r
#endif
}

// Whoever won GRANTED -> RETURNED gives the grant back: after the seal, as an execution does.
inline return_grant(r) {
  decide_attempt(r);
  seal(r);
  LOCK;
  promised--;
#ifndef MUTANT_LOST_WAKE
  scan_locked();
#endif
  unlock();
  give_device(r);
  notes ! r
}

active [REQUESTS] proctype owner() {
  byte i;
  bool won;
  byte r = _pid;

  // Begin (ATT-1).
  atomic {
    if
    :: !closed -> observations++; watched[r] = true; begun++; won = true
    :: else
    fi
  };
  if
  :: !won -> goto out
  :: else
  fi;

  // Submit: from here on the finalizer is in the admission, unless the owner has finished meanwhile (ATT-4).
  atomic {
    won = false;
    if
    :: EDGE(ATTEMPT, attempt[r], OPEN, SUBMITTED); won = true
    :: else
    fi
  };
  if
  :: !won -> goto out
  :: else
  fi;
  // The device permit before the queue (ADM-2).
#ifndef MUTANT_PERMIT_AFTER_QUEUE
  atomic {
    won = false;
    if
    :: !closed -> devices++; permit[r] = true; won = true
    :: else
    fi
  };
#endif
  if
  :: !won -> decide_attempt(r); seal(r); deliver_inline(r); goto out // lost to the close
  :: else
  fi;
  LOCK;
  submitted++;
  won = false; // decided here and now, against it
  if
#ifndef MUTANT_NO_RECHECK
  :: closed ->
    atomic { EDGE(ADMISSION, word[r], NEW, CLOSED); count(r, ended) };
    won = true
#endif
#ifndef MUTANT_NO_TOKEN
  :: token[r] ->
    atomic { EDGE(ADMISSION, word[r], NEW, CANCELLED); count(r, cancelled) };
    won = true
#endif
  :: lost ->
    atomic { EDGE(ADMISSION, word[r], NEW, REFUSED); count(r, refused) };
    won = true
  :: else ->
    assert(!swept);
    if
    :: promised < SLOTS -> // an expired deadline still gets one uncontended try
      atomic { EDGE(ADMISSION, word[r], NEW, GRANTED); count(r, granted) };
      promised++
    :: promised == SLOTS && late[r] ->
      atomic { EDGE(ADMISSION, word[r], NEW, EXPIRED); count(r, expired) };
      won = true
    :: promised == SLOTS && !late[r] ->
      atomic { EDGE(ADMISSION, word[r], NEW, QUEUED); queued++ };
      assert(!cancel_over[r]) // a cancel that is over has not been overlooked
    fi
  fi;
  unlock();
#ifdef MUTANT_PERMIT_AFTER_QUEUE
  devices++;
  permit[r] = true;
#endif
  if
  :: won -> end_refused(r); goto out
  :: else
  fi;

  // Wait. Whoever decides against it ends the attempt.
  word[r] != ADMISSION_QUEUED;
  if
  :: skip ->
    atomic {
      won = false;
      if
#ifdef MUTANT_BLIND_TAKE
      :: word[r] == ADMISSION_GRANTED || word[r] == ADMISSION_RETURNED -> word[r] = ADMISSION_TAKEN; won = true
#else
      :: EDGE(ADMISSION, word[r], GRANTED, TAKEN); won = true
#endif
      :: else
      fi
    };
    if
    :: !won -> goto out
    :: else
    fi;
    atomic { assert(!quiescent); running++; assert(running <= SLOTS) };
    // The execution ends in the order of EXE-2: seal, capacity, device permit, observation permit, activity lease.
    decide_attempt(r);
    running--;
#ifndef MUTANT_EARLY_CAPACITY
    seal(r);
#endif
    LOCK;
    promised--;
    assert(attempt[r] == ATTEMPT_SEALED);
#ifndef MUTANT_LOST_WAKE
    scan_locked();
#endif
    unlock();
#ifdef MUTANT_EARLY_CAPACITY
    seal(r);
#endif
    give_device(r);
    deliver_inline(r)
  :: skip ->
    // Released without being taken.
    atomic {
      won = false;
      if
      :: EDGE(ADMISSION, word[r], GRANTED, RETURNED); won = true
      :: else
      fi
    };
    if
    :: won -> return_grant(r)
    :: else
    fi
  fi;
out:
  owners_over++
}

// Fires the token, then decides about what it finds.
inline cancel(r) {
  token[r] = true;
  LOCK;
  atomic {
    won = false;
#ifdef MUTANT_BLIND_DECISION
    if
    :: word[r] == ADMISSION_QUEUED || word[r] == ADMISSION_GRANTED -> word[r] = ADMISSION_CANCELLED; queued--; count(r, cancelled); won = true
#else
    if
    :: EDGE(ADMISSION, word[r], QUEUED, CANCELLED); queued--; count(r, cancelled); won = true
#endif
    :: else
    fi
  };
  scan_locked();
  unlock();
  if
  :: won -> end_refused(r)
  :: else ->
    atomic {
      if
      :: EDGE(ADMISSION, word[r], GRANTED, RETURNED); won = true
      :: else
      fi
    };
    if
    :: won -> return_grant(r)
    :: else
    fi
  fi
}

active [CANCEL] proctype canceller() {
  byte i;
  bool won;
  cancel(0);
  cancel_over[0] = true;
  over++
}

// The deadline of attempt 1 passes: queued, it expires; granted and untaken, it is returned.
active [EXPIRE] proctype timer() {
  byte i;
  bool won;
  late[1] = true;
  LOCK;
  atomic {
    if
    :: EDGE(ADMISSION, word[1], QUEUED, EXPIRED); queued--; count(1, expired); won = true
    :: else
    fi
  };
  scan_locked();
  unlock();
  if
  :: won -> end_refused(1)
  :: else ->
    atomic {
      if
      :: EDGE(ADMISSION, word[1], GRANTED, RETURNED); won = true
      :: else
      fi
    };
    if
    :: won -> return_grant(1)
    :: else
    fi
  fi;
  over++
}

// The only device goes out of service: nobody is left waiting for it.
active [LOSE] proctype loser() {
  byte r;
  bool refuse[REQUESTS];
  LOCK;
  lost = true;
  for (r : 0 .. REQUESTS - 1) {
    atomic {
      if
      :: EDGE(ADMISSION, word[r], QUEUED, REFUSED); queued--; count(r, refused); refuse[r] = true
      :: else
      fi
    }
  };
  assert(queued == 0);
  unlock();
  for (r : 0 .. REQUESTS - 1) {
    if
    :: refuse[r] -> end_refused(r)
    :: else
    fi
  };
  over++
}

// Attempt 0 is finished by its owner's thread while another thread submits and runs it (ATT-4). Submitted, the finalizer is in the admission.
active [FINISH] proctype finisher() {
  byte i;
  bool won, mine;
  watched[0] || owners_over == REQUESTS;
  if
  :: !watched[0]
  :: else ->
    atomic {
      if
      :: EDGE(ATTEMPT, attempt[0], OPEN, DECIDED); won = true; mine = true
      :: attempt[0] == ATTEMPT_SUBMITTED && !outcome[0] -> outcome[0] = true; won = true
      :: else // too late, or finished
      fi
    };
#ifdef MUTANT_TWO_FINALIZERS
    mine = won;
#endif
    if
    :: mine ->
#ifdef MUTANT_TWO_FINALIZERS
      if
      :: attempt[0] == ATTEMPT_SUBMITTED -> decide_attempt(0)
      :: else
      fi;
#endif
      seal(0);
      notes ! 0
    :: won && !mine -> cancel(0)
    :: else
    fi
  fi;
  over++
}

active proctype notifier() {
  byte r;
end:
  do
  :: notes ? r ->
    give_observation(r);
    if
    :: CLOSE -> closed = true // user code may close, and may not wait here (USR-2)
    :: skip
    fi
  od
}

active proctype keeper() {
  byte r;
  bool closes[REQUESTS];
  if
  :: CLOSE ->
    closed = true; // the signal: at any moment, and never behind the lock
    LOCK;
    for (r : 0 .. REQUESTS - 1) {
      atomic {
        if
        :: EDGE(ADMISSION, word[r], QUEUED, CLOSED); queued--; count(r, ended); closes[r] = true
        :: else
        fi
      }
    };
    swept = true; // whoever submits from here on finds the bit
    unlock();
    for (r : 0 .. REQUESTS - 1) {
      if
      :: closes[r] -> end_refused(r)
      :: else
      fi
    };
    devices == 0;
    atomic { assert(promised == 0 && running == 0 && queued == 0); quiescent = true };
    observations == 0;
    atomic { assert(begun == sealed); done = true } // CLOSED: no attempt is open
  :: !CLOSE
  fi;
  owners_over == REQUESTS && over == CANCEL + EXPIRE + LOSE + FINISH && empty(notes) && observations == 0;
  assert(promised == 0 && devices == 0 && queued == 0 && begun == sealed);
  assert(submitted == granted + refused + cancelled + expired + ended)
}
