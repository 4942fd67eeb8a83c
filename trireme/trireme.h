// Everything a user of Trireme needs.
#pragma once
#include <trireme/base/error.h>
#include <trireme/comm/group.h>
#include <trireme/comm/world.h>
#include <trireme/data/loader.h>
#include <trireme/data/source.h>
#include <trireme/models/build.h>
#include <trireme/monitor/sink.h>
#include <trireme/parallel/data_parallel.h>
#include <trireme/parallel/nn/attention.h>
#include <trireme/parallel/nn/divided_random.h>
#include <trireme/parallel/nn/layer_norm.h>
#include <trireme/parallel/nn/vocabulary.h>
#include <trireme/run/training.h>
#include <trireme/tensor/cpu_allocator.h>
#include <trireme/tensor/keep_memory.h>
#include <trireme/train/trainer.h>
