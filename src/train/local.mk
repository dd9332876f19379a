libtrireme_a_SOURCES += \
	src/train/batches.c src/train/batches.h src/train/checkpoint_space.c src/train/checkpoint_space.h src/train/core_use.c src/train/core_use.h src/train/disk_rate.c src/train/disk_rate.h \
	src/train/data_tokenizer.c src/train/data_tokenizer.h \
	src/train/evaluate.c src/train/evaluate.h src/train/gpu_check.c src/train/gpu_check.h src/train/gpu_shapes.c src/train/gpu_shapes.h src/train/generator.c src/train/generator.h \
	src/train/samples.c src/train/samples.h src/train/sampling.c src/train/sampling.h \
	src/train/export_folder.c src/train/export_folder.h src/train/export_tokenizer.c src/train/export_tokenizer.h src/train/hf_tensors.c src/train/hf_tensors.h src/train/merge.c src/train/merge.h \
	src/train/lr_schedule.c src/train/lr_schedule.h src/train/memory_budget.c src/train/memory_budget.h \
	src/train/pending_update.c src/train/pending_update.h src/train/metrics.c src/train/metrics.h src/train/metrics_resume.c src/train/metrics_resume.h \
	src/train/metrics_step.h src/train/product_file.c src/train/product_file.h src/train/product_table.c src/train/product_table.h src/train/progress.c src/train/progress.h src/train/read_ahead.c src/train/read_ahead.h src/train/run_checkpoint.c src/train/run_checkpoint.h \
	src/train/run_summary.c src/train/run_summary.h src/train/sampling_blocks.c src/train/sampling_in_order.c src/train/sampling_private.h src/train/sampling_top_p.c \
	src/train/scaler.c src/train/scaler.h src/train/session.c src/train/session.h src/train/session_products.c src/train/session_products.h src/train/shared_settings.c src/train/shared_settings.h \
	src/train/stop.c src/train/stop.h src/train/data_chat.c src/train/data_chat.h src/train/data_files.c src/train/data_files.h src/train/tokenizer_check.c src/train/tokenizer_check.h \
	src/train/tracing.c src/train/tracing.h \
	src/train/trainer.c src/train/trainer.h src/train/trainer_evaluate.c src/train/trainer_private.h src/train/trainer_run.c src/train/training_data.c src/train/training_data.h src/train/trireme.c src/train/weights.h \
	src/train/run_checkpoint_open.c src/train/weights_base.c src/train/weights_compare.c src/train/weights_export.c src/train/weights_export.h src/train/weights_import.c src/train/weights_init.c src/train/weights_node.c src/train/weights_node.h src/train/weights_pieces.c src/train/weights.c src/train/weights_private.h src/train/weights_rows.c src/train/weights_rows.h src/train/weights_saved.c src/train/weights_saved.h
libtrireme_a_SOURCES += src/train/run_aside.c src/train/run_changes.c src/train/run_changes.h \
	src/train/run_directory.c src/train/run_directory.h src/train/run_directory_private.h src/train/run_directory_save.c src/train/run_length.c src/train/run_length.h \
	src/train/run_record.c src/train/run_record.h src/train/run_start.c src/train/run_start_commit.c src/train/run_machine.c src/train/run_machine.h src/train/layout_auto.c src/train/layout_auto.h
include $(top_srcdir)/src/train/comparison.mk
