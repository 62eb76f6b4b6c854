// base/child.h — work in a process of its own, so that its memory was never this process's
#pragma once

#include <functional>
#include <string>

namespace snug {

// What `work` returns, worked out in a child that has a copy of this process's memory and ends before this returns; here where the system
// gives no process. In the child there is one thread, and OpenMP is unusable. `waiting`, if any, is called about once a second with the
// seconds so far. Errors of `work` are thrown here: UserError and InternalError as they are, others as InternalError. Throws InternalError
// when the child ends without an answer, or has none after `limit_seconds` (it is ended then).
std::string in_child(const std::function<std::string()>& work, double limit_seconds,
                     const std::function<void(double)>& waiting = {});

}  // namespace snug
