#include <ATen/core/Tensor.h>

#include <trireme/data/block_share.h>
#include <trireme/data/input_memory.h>
#include <trireme/data/kinds/record_set.h>
#include <trireme/data/loader.h>
#include <any>
#include <cstdint>

#include "data_files.h"
#include "numbered.h"

namespace trireme::data {
namespace block_share_tests {

constexpr int64_t kMega = int64_t{1} << 20;

DataOptions options_for(const Folder& folder, int64_t memory_bytes) {
  DataOptions options;
  options.name = "csv";
  options.path = folder.write("0.csv.gz", gzipped("x,y\n1,0\n2,1\n3,0\n4,1\n"));
  options.memory_bytes = memory_bytes;
  options.test_fraction = 0;
  return options;
}

TEST(BlockShare, LoadersOfAProcessAddUpToTheMemoryOfItsHost) {
  const auto memory = blocks_of_process(800);
  EXPECT_EQ(memory->limit(), 800);
  {
    const BlockShare one(800, 4);
    EXPECT_EQ(memory->limit(), 200);
    const BlockShare replica(800, 4);
    EXPECT_EQ(memory->limit(), 400);
    const BlockShare alone(800, 1);
    EXPECT_EQ(memory->limit(), 800);
  }
  EXPECT_EQ(memory->limit(), 800);
}

TEST(BlockShare, ReadersOfADataSetFollowItsMemory) {
  const Folder folder;
  for (const int64_t asked : {200 * kMega, 8000 * kMega}) {
    const records::OpenOptions open = files_of_parts(options_for(folder, asked))[0].open;
    EXPECT_EQ(open.memory_bytes, asked / 2);
    EXPECT_NE(open.remedy_of_memory.find("data.memory_bytes"), std::string::npos);
    EXPECT_EQ(open.blocks->limit(), asked / 2);
  }
  const records::OpenOptions open = files_of_parts(options_for(folder, -1))[0].open;
  EXPECT_EQ(open.memory_bytes, 1024 * kMega);
}

TEST(BlockShare, ALoaderLeavesTheBlocksTheirPart) {
  const Folder folder;
  EXPECT_FALSE(process_has_blocks());
  EXPECT_EQ(memory_beside_blocks(800 * kMega, 0), 800 * kMega);
  const Dataset data = read_record_set(options_for(folder, 800 * kMega));
  EXPECT_TRUE(process_has_blocks());
  EXPECT_EQ(memory_beside_blocks(800 * kMega, 0), 400 * kMega);
  const auto memory = std::any_cast<const RecordParts&>(data.samples).options.memory_bytes;
  const Loader loader(numbered(8), {.batch = 4, .loaders_of_host = 8, .memory_bytes = memory});
  EXPECT_EQ(blocks_of_process(400 * kMega)->limit(), 50 * kMega);
}

}  // namespace block_share_tests
}  // namespace trireme::data
