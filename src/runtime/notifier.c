// SPDX-License-Identifier: Apache-2.0
/// The notifier: the one library thread on which user callbacks run when no thread of the user's own is finishing the work (USR-2).
#include "base/notify_fd.h"

#include "runtime/core.h"

void berthi_notify(berthi_core *core, berthi_note *note) {
  berthi_mutex_lock(&core->notifier_lock);
  bool ended = core->notifier_stop;
  if (!ended && !note->queued) {
    note->queued = true;
    berthi_list_append(&core->notes, &note->link);
  }
  berthi_mutex_unlock(&core->notifier_lock);
  if (ended) note->run(note);
  else berthi_event_set(&core->notifier_wake);
}

static berthi_note *next_note(berthi_core *core, bool *stop) {
  berthi_note *note = NULL;
  berthi_mutex_lock(&core->notifier_lock);
  if (!berthi_list_empty(&core->notes)) {
    note = BERTHI_CONTAINER(core->notes.next, berthi_note, link);
    berthi_list_remove(&note->link);
    note->queued = false;
  }
  // CLOSED does not wait for what is still noted: it runs before the thread ends.
  *stop = !note && berthi_load(&core->state, acquire) == BERTHI_BACKEND_CLOSED && berthi_load(&core->notifier_leave, acquire);
  if (*stop) core->notifier_stop = true;
  berthi_mutex_unlock(&core->notifier_lock);
  return note;
}

void berthi_notifier_main(void *arg) {
  berthi_core *core = arg;
  berthi_thread_self()->flags |= BERTHI_THREAD_INTERNAL | BERTHI_THREAD_NOTIFIER;
  for (bool stop = false; !stop;) {
    berthi_event_clear(&core->notifier_wake);
    berthi_note *note = next_note(core, &stop);
    if (note) note->run(note);
    else if (!stop) (void)berthi_event_wait(&core->notifier_wake, BERTH_NO_DEADLINE, "notifier.idle");
  }
  berthi_core_release(core);
}

void berthi_notifier_succeed(berthi_core *core) {
  // Without a thread to be had, this one does the work before its unwind goes on.
  if (berthi_thread_start_detached("berth-notifier", berthi_notifier_main, core, NULL)) berthi_notifier_main(core);
}

void berthi_write_fd(int fd) { berthi_notify_fd(fd); }
