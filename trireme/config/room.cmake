target_link_libraries(trireme_config PRIVATE Trireme::yaml)
