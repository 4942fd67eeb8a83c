# Trireme::Trireme: everything that a user's programme needs. There is also a target for each room
# (Trireme::comm, ...).
add_library(trireme_all INTERFACE)
add_library(Trireme::Trireme ALIAS trireme_all)
set_target_properties(trireme_all PROPERTIES EXPORT_NAME Trireme)
target_link_libraries(trireme_all INTERFACE ${TRIREME_ROOMS})

# A shared library or plugin of a user's shows none of the symbols of Trireme's archives, so that
# two of them may have different versions of Trireme in one process. It decides by its own options
# whether it shows what the headers define inline.
list(TRANSFORM TRIREME_ROOMS REPLACE "(.+)" "lib\\1.a" OUTPUT_VARIABLE archives)
list(JOIN archives ":" archives)
set(type $<TARGET_PROPERTY:TYPE>)
set(is_shared $<OR:$<STREQUAL:${type},SHARED_LIBRARY>,$<STREQUAL:${type},MODULE_LIBRARY>>)
target_link_options(trireme_flags INTERFACE "$<${is_shared}:LINKER:--exclude-libs,${archives}>")

# A shared object for model.library is compiled with this.
add_library(trireme_headers INTERFACE)
add_library(Trireme::headers ALIAS trireme_headers)
set_target_properties(trireme_headers PROPERTIES EXPORT_NAME headers)
target_link_libraries(trireme_headers INTERFACE trireme_flags Trireme::torch)
include(TriremeModelLibrary)
