// Functions of a programme's own that stages call by name.
#pragma once
#include <trireme/data/batch.h>
#include <trireme/data/source.h>
#include <functional>
#include <string>

namespace trireme {

// Makes another sample of one. Equal samples and draws must give equal results. Operations of
// LibTorch that draw random numbers, and Draw::seed, have numbers of this sample and stage. Called
// on several threads.
using MapFunction = std::function<Example(Example, const Draw&)>;
// False leaves the sample out. Called on several threads.
using FilterFunction = std::function<bool(const Example&)>;

// Adds a function for the stages map(`name`) and random_map(`name`), on every rank, before the
// configuration is read. Throws Error(invalid_argument) if the name is taken.
void register_map(const std::string& name, MapFunction function);
// The same for the stage filter(`name`).
void register_filter(const std::string& name, FilterFunction function);

namespace data {
// Throw Error(invalid_argument) that lists the known names.
MapFunction find_map(const std::string& name);
FilterFunction find_filter(const std::string& name);
}  // namespace data

}  // namespace trireme
