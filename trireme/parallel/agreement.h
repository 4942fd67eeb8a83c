// Tells and compares values over the ranks of a group.
#pragma once
#include <trireme/base/json.h>
#include <trireme/comm/group.h>
#include <functional>
#include <string>

namespace trireme {

// COLLECTIVE. Returns the text of rank `root` on every rank.
std::string broadcast_text(Group& group, const std::string& mine, int root);

// COLLECTIVE. Returns on every rank what `find` returns on rank 0, the only one that calls it. If
// it throws, all ranks throw: rank 0 the exception itself, and the others an Error of its code and
// text (internal if it was no Error).
Json found_by_first(Group& group, const std::function<Json()>& find);

// COLLECTIVE. The same for work that may take longer than the group's time-out. Rank 0 does it on
// a thread of its own, and the ranks meet every half second until it is done.
Json found_by_first_in_time(Group& group, const std::function<Json()>& find);

// COLLECTIVE. Throws Error(invalid_argument) on every rank unless `mine` is equal on all of them.
// The error names the lowest rank that differs from rank 0, and the first entry in which it does.
// While all are equal, only digests travel.
void agree(Group& group, const Json& mine);

// COLLECTIVE. Every rank runs `act`, which may be COLLECTIVE too. If it throws an Error on some
// ranks, all ranks throw: those the Error itself, and the others one of the code and text of the
// lowest of them. Any other exception is that of a rank which is lost.
void run_on_all(Group& group, const std::function<void()>& act);

}  // namespace trireme
