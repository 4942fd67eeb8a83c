target_link_libraries(trireme_config PRIVATE yaml-cpp)
