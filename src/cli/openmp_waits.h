// cli/openmp_waits.h — how long OpenMP's threads spin before they sleep
#pragma once

namespace snug {

// libgomp reads how its threads wait when it is loaded, before main, and by default they spin for milliseconds: where other processes
// want the cores too, threads that only wait keep from them the thread that they wait for. So this starts the program anew in its
// place, with GOMP_SPINCOUNT set, unless the user's environment says how to wait (OMP_WAIT_POLICY or GOMP_SPINCOUNT; the latter
// is set from then on, which is why it happens once). To be called first thing, with main's arguments: descriptors, signals
// and the name stay. Returns where nothing is to be done, and where the system refuses: the program is only slower then.
void shorten_openmp_waits(char** arguments);

}  // namespace snug
