# trireme_add_model_library(NAME SOURCES...) makes NAME.so, a shared object for the key
# model.library: its sources register models with TRIREME_MODEL (trireme/register.h). It links no
# room of Trireme, because the programme that opens it has them. Inline code of Trireme's headers
# stays hidden in it.
function(trireme_add_model_library name)
  add_library(${name} MODULE ${ARGN})
  set_target_properties(${name} PROPERTIES
    PREFIX "" CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_link_libraries(${name} PRIVATE Trireme::headers)
endfunction()
