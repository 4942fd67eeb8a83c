target_include_directories(trireme_comm SYSTEM PRIVATE ${TRIREME_GLOO_INCLUDE})
