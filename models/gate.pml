// SPDX-License-Identifier: Apache-2.0
// The gate word (BCK-5, ATT-1; src/runtime/gate.h): three counts in one word, taken by compare-and-swap, given by subtraction, closed by or.
//
// check: three users, two closers | | -DSAFETY |
// refute: take that tests and then adds | -DMUTANT_BLIND_TAKE | -DSAFETY |
// refute: close by load and store | -DMUTANT_TORN_CLOSE | -DSAFETY |
// refute: give by load and store | -DMUTANT_TORN_GIVE | -DSAFETY |
// refute: permit added by one who holds none | -DMUTANT_UNCOVERED_ADD | -DSAFETY |

#define USERS 3
#define CLOSERS 2
// The word in small: closed bit, observation permits, device permits.
#define CLOSED 64
#define OBSERVATION 8
#define DEVICE 1
#define OBSERVATIONS ((gate & 56) / OBSERVATION)
#define DEVICES (gate & 7)

byte gate;

// Ghosts: what the permits stand for.
byte begun, losers, open, working, firsts, finished;
bool devices_quiescent, closed;

inline took(unit) {
  if
  :: unit == OBSERVATION -> assert(!closed); begun++; open++
  :: unit == DEVICE -> assert(!devices_quiescent); working++
  fi
}

inline take(unit) {
  word = gate;
  won = false;
  do
  :: word & CLOSED -> break
  :: else ->
#ifdef MUTANT_BLIND_TAKE
    atomic { gate = gate + unit; took(unit); won = true };
#else
    atomic {
      if
      :: gate == word -> gate = word + unit; took(unit); won = true
      :: else -> word = gate
      fi
    };
#endif
    if
    :: won -> break
    :: else
    fi
  od
}

// One more permit under one that is held.
inline add(unit) {
  atomic { gate = gate + unit; took(unit) }
}

inline give(unit) {
  atomic {
    if
    :: unit == OBSERVATION -> assert(open > 0 && OBSERVATIONS > 0); open--
    :: unit == DEVICE -> assert(working > 0 && DEVICES > 0); working--
    fi;
#ifdef MUTANT_TORN_GIVE
    word = gate
  };
  gate = word - unit
#else
    gate = gate - unit
  }
#endif
}

active [USERS] proctype user() {
  byte word;
  bool won;
  take(OBSERVATION);
  if
  :: !won -> losers++
  :: else ->
    take(DEVICE);
    if
    :: won ->
      if
      :: add(DEVICE); give(DEVICE)
      :: skip
      fi;
      give(DEVICE)
    :: else
    fi;
#ifdef MUTANT_UNCOVERED_ADD
    add(DEVICE);
    give(DEVICE);
#endif
    give(OBSERVATION)
  fi;
  finished++
}

active [CLOSERS] proctype closer() {
#ifdef MUTANT_TORN_CLOSE
  byte word = gate;
  gate = word | CLOSED;
#else
  atomic {
    if
    :: !(gate & CLOSED) -> firsts++
    :: else
    fi;
    gate = gate | CLOSED
  };
#endif
}

active proctype keeper() {
  // Bit and count are read together: one word.
  atomic { (gate & CLOSED) && DEVICES == 0 -> devices_quiescent = true; assert(working == 0) };
  atomic { (gate & CLOSED) && OBSERVATIONS == 0 -> closed = true; assert(open == 0) };
  finished == USERS;
  assert(gate == CLOSED);            // nothing lost, nothing negative
  assert(begun + losers == USERS);   // a loser leaves nothing counted
#ifndef MUTANT_TORN_CLOSE
  assert(firsts == 1)                // one closer signalled
#endif
}
