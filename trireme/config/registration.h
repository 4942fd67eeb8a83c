// Registrations that run before main(), or while a shared object is opened: the macros of
// trireme/register.h. An exception may not leave there, so it waits.
#pragma once
#include <functional>

namespace trireme::config {

// Calls `action`. The first exception of all such calls is kept. Always returns true.
bool register_early(const std::function<void()>& action) noexcept;
// Throws the exception that was kept, once.
void throw_if_registration_failed();

}  // namespace trireme::config
