// Functions of a programme's own that stages call by name.
#pragma once
#include <trireme/data/batch.h>
#include <trireme/data/pipeline/stage.h>
#include <trireme/data/source.h>
#include <trireme/records/record.h>
#include <cstdint>
#include <functional>
#include <string>

namespace trireme {

// Makes another sample of one. Equal samples and draws must give equal results. Operations of
// LibTorch that draw random numbers, and Draw::seed, have numbers of this sample and stage. Called
// on several threads.
using MapFunction = std::function<Example(Example, const Draw&)>;
// Makes a sample of the fields of its record, which are valid during the call. `index` is the
// number of the sample. Equal records and indices must give equal results, in training and in
// evaluations. Error(corrupt) says that the record is damaged: data.on_bad_record=skip leaves it
// out then. Called on several threads.
using DecodeFunction = std::function<Example(const records::Record&, int64_t index)>;
// False leaves the sample out. Called on several threads.
using FilterFunction = std::function<bool(const Example&)>;

// Adds a function for the stages map(`name`) and random_map(`name`), on every rank, before the
// configuration is read. `version` is any text that changes when the function gives other results:
// by it a cache on a disk knows the samples of an older function. Without it, the function may
// only stand in front of a cache in memory. Throws Error(invalid_argument) if the name is taken.
void register_map(const std::string& name, MapFunction function, const std::string& version = "");
// The same for the stage decode_record(`name`, shape).
void register_decode(const std::string& name, DecodeFunction function,
                     const std::string& version = "");
// The same for the stage filter(`name`).
void register_filter(const std::string& name, FilterFunction function,
                     const std::string& version = "");

namespace data {
// Throw Error(invalid_argument) that lists the known names.
MapFunction find_map(const std::string& name);
DecodeFunction find_decode(const std::string& name);
FilterFunction find_filter(const std::string& name);
// The versions of the functions that stages call.
struct FunctionVersions {
  std::string text;             // Differs if one of them does.
  std::string without_version;  // A stage whose function has none; empty: all have one.
};
FunctionVersions versions_of_functions(const Stages& stages);
}  // namespace data

}  // namespace trireme
