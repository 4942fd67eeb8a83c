target_link_libraries(trireme_run_plain
  PUBLIC trireme_comm_plain trireme_data_plain trireme_models_plain trireme_parallel_plain
         trireme_train_plain trireme_faults trireme_checkpoint trireme_launch)
