// SPDX-License-Identifier: Apache-2.0
/// The keeper: the thread that fires timers (ADM-5) and moves a close on. It never calls user code and never waits for a device.
#include "runtime/close.h"
#include "runtime/core.h"

static void run_notes(berthi_core *core) {
  for (;;) {
    berthi_note *note = NULL;
    berthi_after after;
    berthi_lock(core, &after);
    if (!berthi_list_empty(&core->keeper_notes)) {
      note = BERTHI_CONTAINER(core->keeper_notes.next, berthi_note, link);
      berthi_list_remove(&note->link);
    }
    berthi_unlock(core, &after);
    if (!note) return;
    note->run(note);
  }
}

void berthi_keeper_main(void *arg) {
  berthi_core *core = arg;
  berthi_thread_self()->flags |= BERTHI_THREAD_INTERNAL;
  for (bool closed = false; !closed;) {
    berthi_after after;
    berthi_event_clear(&core->keeper_wake);
    berthi_lock(core, &after);
    int64_t next = berthi_timers_run_locked(core, berthi_now());
    bool notes = !berthi_list_empty(&core->keeper_notes);
    closed = berthi_close_advance_locked(core);
    berthi_unlock(core, &after);
    if (notes) run_notes(core);
    else if (!closed) (void)berthi_event_wait(&core->keeper_wake, next, "keeper.idle");
  }
  run_notes(core);
  berthi_close_finish(core);
  berthi_core_release(core);
}
