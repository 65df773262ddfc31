// SPDX-License-Identifier: Apache-2.0
// The health of one device (HLT-1; src/runtime/health.c, release.c): faults, the resolution of a suspicion and its limit, probes, the operator, and
// requests that want the device meanwhile. No grant on a device that is not OK, nobody left waiting for one that does not come back by itself, and
// what was withheld is free again when the device is.
//
// check: two requests, one slot, two probes | | -DSAFETY |
// check: two requests, two slots, one probe | -DSLOTS=2 -DPROBES=1 | -DSAFETY |
// refute: scan that does not look at the health | -DMUTANT_BLIND_SCAN | -DSAFETY |
// refute: out of service without refusing who waits | -DMUTANT_STUCK_WAITER | -DSAFETY |
// refute: back in service without a scan | -DMUTANT_LOST_WAKE | -DSAFETY |
// refute: a second fault replaces the first cause | -DMUTANT_SECOND_CAUSE -DSLOTS=2 -DPROBES=1 | -DSAFETY |
// refute: withheld by a look that the lock does not cover | -DMUTANT_STALE_CAPACITY | -DSAFETY |
// refute: a resolution that does not look whether it is still asked for | -DMUTANT_STALE_RESOLVE | -DSAFETY |

#include "words.h"

#define REQUESTS 2
#ifndef PROBES
#define PROBES 2
#endif
#ifndef SLOTS
#define SLOTS 1
#endif

mtype health = HEALTH_OK;

// Under the admission lock.
byte promised;
byte withheld;          // by health: free again when the device is
bool waiting[REQUESTS], refused[REQUESTS];
bool resolve_wanted, probe_wanted;
byte cause;             // 0: none, else 1 + the request whose fault was first

// Ghosts.
byte running, over, first;

#define IN_SERVICE (health == HEALTH_OK)
#define MAY_SERVE (health == HEALTH_OK || health == HEALTH_SUSPECT)

// What holds whenever the lock is free.
inline unlock() {
  atomic {
    assert(promised + withheld <= SLOTS);
    assert(withheld == 0 || !IN_SERVICE);
    for (i : 0 .. REQUESTS - 1) {
      assert(!waiting[i] || health == HEALTH_SUSPECT || (IN_SERVICE && promised == SLOTS))
    }
    assert(cause == first);
    i = 0;
    UNLOCK
  }
}

// Grants on a device in service; ends who waits for one that is out of it. A SUSPECT resolves soon: its waiters stay.
inline scan_locked() {
  atomic {
    for (i : 0 .. REQUESTS - 1) {
      if
#ifdef MUTANT_BLIND_SCAN
      :: waiting[i] && promised + withheld < SLOTS ->
#else
      :: waiting[i] && IN_SERVICE && promised + withheld < SLOTS ->
#endif
        assert(IN_SERVICE);
        promised++;
        waiting[i] = false
#ifndef MUTANT_STUCK_WAITER
      :: waiting[i] && !MAY_SERVE -> waiting[i] = false; refused[i] = true
#endif
      :: else
      fi
    };
    i = 0
  }
}

inline heal_locked() {
  withheld = 0;
  cause = 0;
  first = 0;
#ifndef MUTANT_LOST_WAKE
  scan_locked()
#endif
}

active [REQUESTS] proctype request() {
  byte i;
  bool withhold;
  byte me = _pid;
  LOCK;
  waiting[me] = true;
  scan_locked();
  unlock();
  !waiting[me];
  if
  :: refused[me] // out of service: at once, with the reason
  :: else ->
    atomic { running++; assert(running <= SLOTS) };
    if
    :: skip
    :: skip ->
      // The fault is committed before the report tells of it (EXE-2).
      LOCK;
      atomic {
        if
        :: first == 0 -> first = 1 + me
        :: else
        fi;
#ifdef MUTANT_SECOND_CAUSE
        cause = 1 + me;
#else
        cause = (cause == 0 -> 1 + me : cause);
#endif
        if
        :: EDGE(HEALTH, health, OK, SUSPECT); resolve_wanted = true
        :: else
        fi
      };
      unlock()
    fi;
    withhold = !IN_SERVICE; // so the sealed report says
    running--;
    LOCK;
#ifdef MUTANT_STALE_CAPACITY
    atomic { promised--; withheld = withheld + withhold };
#else
    atomic { promised--; withheld = withheld + (withhold && !IN_SERVICE) };
#endif
    scan_locked();
    unlock()
  fi;
  over++
}

// The operator takes the device out by hand, which lasts until it is restored by hand.
active proctype operator() {
  byte i;
  LOCK;
  atomic {
    if
    :: EDGE(HEALTH, health, OK, QUARANTINED)
    :: EDGE(HEALTH, health, SUSPECT, QUARANTINED)
    :: else
    fi
  };
  scan_locked();
  unlock();
  LOCK;
  if
  :: health == HEALTH_QUARANTINED || health == HEALTH_LOST -> probe_wanted = true
  :: else
  fi;
  unlock();
  over++
}

// A suspicion does not outlast its limit, whatever the device's thread is doing.
active proctype keeper() {
  byte i;
  if
  :: resolve_wanted ->
    LOCK;
    atomic {
      if
      :: EDGE(HEALTH, health, SUSPECT, QUARANTINED); probe_wanted = true
      :: else
      fi
    };
    scan_locked();
    unlock()
  :: over >= REQUESTS
  fi;
  over++
}

// The device's own thread.
active proctype device() {
  byte i, probes;
  do
  :: resolve_wanted ->
    LOCK;
    resolve_wanted = false;
    atomic {
      if
      :: EDGE(HEALTH, health, SUSPECT, OK); heal_locked()
      :: EDGE(HEALTH, health, SUSPECT, QUARANTINED); probe_wanted = true; scan_locked()
      :: EDGE(HEALTH, health, SUSPECT, LOST); scan_locked()
      :: EDGE(HEALTH, health, SUSPECT, RESTART_REQUIRED); scan_locked()
#ifdef MUTANT_STALE_RESOLVE
      :: health != HEALTH_SUSPECT -> health = HEALTH_OK
#endif
      :: else
      fi
    };
    unlock()
  :: probe_wanted && probes < PROBES ->
    probes++;
    LOCK;
    probe_wanted = false;
    atomic {
      if
      :: EDGE(HEALTH, health, QUARANTINED, PROBING)
      :: EDGE(HEALTH, health, LOST, PROBING)
      :: else
      fi
    };
    unlock();
    // The probe itself goes on without the lock.
    if
    :: health == HEALTH_PROBING ->
      LOCK;
      atomic {
        if
        :: EDGE(HEALTH, health, PROBING, OK); heal_locked()
        :: EDGE(HEALTH, health, PROBING, QUARANTINED); probe_wanted = true; scan_locked()
        :: EDGE(HEALTH, health, PROBING, LOST); scan_locked()
        :: EDGE(HEALTH, health, PROBING, RESTART_REQUIRED); scan_locked()
        fi
      };
      unlock()
    :: else
    fi
  :: over == REQUESTS + 2 && !resolve_wanted && (!probe_wanted || probes == PROBES) -> break
  od;
  assert(promised == 0 && running == 0 && health != HEALTH_SUSPECT && health != HEALTH_PROBING);
  assert(!IN_SERVICE || withheld == 0)
}
