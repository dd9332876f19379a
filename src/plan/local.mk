libtrireme_a_SOURCES += src/plan/report.c src/plan/report.h src/plan/report_forecast.c \
	src/plan/report_memory.c src/plan/report_private.h src/plan/report_ranks.c src/plan/report_show.c \
	src/plan/report_time.c src/plan/report_time.h \
	src/plan/report_pipeline.c src/plan/report_pipeline.h src/plan/schedule_svg.c src/plan/schedule_svg.h \
	src/plan/svg.c src/plan/svg.h src/plan/exposed.c src/plan/exposed.h \
	src/plan/step_svg.c src/plan/step_svg.h \
	src/plan/largest.c src/plan/largest.h src/plan/attention_memory.c src/plan/attention_memory.h \
	src/plan/search.c src/plan/search.h src/plan/search_candidates.c \
	src/plan/search_candidates.h src/plan/search_bounds.c src/plan/search_bounds.h \
	src/plan/search_plan.c src/plan/search_plan.h src/plan/search_show.c \
	src/plan/report_units.c src/plan/report_units.h src/plan/search_nodes.c src/plan/search_nodes.h \
	src/plan/show.c src/plan/show.h src/plan/estimate.c src/plan/estimate.h \
	src/plan/checkpoint_size.c src/plan/checkpoint_size.h src/plan/choices.c src/plan/choices.h \
	src/plan/choices_show.c src/plan/settings.c src/plan/settings.h src/plan/compare.c src/plan/compare.h \
	src/plan/compare_show.c src/plan/fit.c src/plan/fit.h \
	src/plan/fewest.c src/plan/fewest.h src/plan/fewest_show.c
