# From graph to step, on one rank: rig.c is what these tests share.
UNIT_TESTS += tests/unit/test_golden tests/unit/test_families tests/unit/test_any_program \
	tests/unit/test_step tests/unit/test_segment tests/unit/test_segment_graphs tests/unit/test_graph tests/unit/test_model \
	tests/unit/test_recompute tests/unit/test_report tests/unit/test_optimizer tests/unit/test_wrap tests/unit/test_scaler \
	tests/unit/test_adapters tests/unit/test_muon tests/unit/test_orthogonalize tests/unit/test_packed_step tests/unit/test_generate tests/unit/test_samples tests/unit/test_logits
rig = tests/unit/rig.c tests/unit/rig.h
tests_unit_test_generate_SOURCES = tests/unit/test_generate.c $(rig)
tests_unit_test_samples_SOURCES = tests/unit/test_samples.c $(rig)
tests_unit_test_families_SOURCES = tests/unit/test_families.c $(h5_data) $(rig)
tests_unit_test_families_CPPFLAGS = $(h5_data_flags) -DGOLDEN_DIR='"$(abs_top_srcdir)/tests/golden"'
tests_unit_test_golden_SOURCES = tests/unit/test_golden.c $(h5_data) $(rig)
tests_unit_test_golden_CPPFLAGS = $(h5_data_flags) -DGOLDEN_DIR='"$(abs_top_srcdir)/tests/golden"'
tests_unit_test_muon_SOURCES = tests/unit/test_muon.c $(h5_data) $(rig)
tests_unit_test_muon_CPPFLAGS = $(h5_data_flags) -DGOLDEN_DIR='"$(abs_top_srcdir)/tests/golden"'
any = tests/unit/any.c tests/unit/any.h
tests_unit_test_any_program_SOURCES = tests/unit/test_any_program.c $(any) $(translator) $(rig)
tests_unit_test_packed_step_SOURCES = tests/unit/test_packed_step.c $(rig)
tests_unit_test_step_SOURCES = tests/unit/test_step.c $(rig)
segment_check = tests/unit/segment_check.c tests/unit/segment_check.h $(rig)
tests_unit_test_segment_SOURCES = tests/unit/test_segment.c $(segment_check)
tests_unit_test_segment_graphs_SOURCES = tests/unit/test_segment_graphs.c $(segment_check)
tests_unit_test_report_SOURCES = tests/unit/test_report.c $(rig)
tests_unit_test_recompute_SOURCES = tests/unit/test_recompute.c $(rig)
tests_unit_test_wrap_SOURCES = tests/unit/test_wrap.c $(rig)
tests_unit_test_optimizer_SOURCES = tests/unit/test_optimizer.c $(rig)
tests_unit_test_scaler_SOURCES = tests/unit/test_scaler.c $(rig)
tests_unit_test_graph_SOURCES = tests/unit/test_graph.c tests/unit/reference.c tests/unit/reference.h $(rig)
tests_unit_test_model_SOURCES = tests/unit/test_model.c $(rig)
tests_unit_test_adapters_SOURCES = tests/unit/test_adapters.c tests/unit/reference.c tests/unit/reference.h $(rig)
