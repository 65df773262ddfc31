// SPDX-License-Identifier: Apache-2.0
// What the models share. The states are those of the code's own table; EDGE is the only way a model moves a word of that table, so the edges in the
// text of a model are the edges that it takes (tests/models/test_states_match.sh compares them with the table).

#define STATE(machine, name, text) machine##_##name,
mtype = {
#include "../src/runtime/states.def"
};

// A guard: executable when the word is `from`, and then it becomes `to`. Inside `atomic` with an `else` it is a compare-and-swap. The verifier prints
// each edge when it first takes it; scripts/models fails when an edge of the text is never taken.
#define EDGE(machine, word, from, to) word == machine##_##from -> word = machine##_##to; EDGE_TAKEN(#machine " " #from " " #to)
#define EDGE_TAKEN(text) c_code { { static int once; if (!once) { once = 1; printf("edge %s\n", text); } } }

// The admission lock.
bool locked;
#define LOCK atomic { !locked -> locked = true }
#define UNLOCK locked = false
