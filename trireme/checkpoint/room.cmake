# The launch room only to link: its headers that are used here include base alone.
target_link_libraries(trireme_checkpoint_plain PRIVATE xxhash ZLIB::ZLIB
  INTERFACE $<LINK_ONLY:trireme_launch>)
