libtrireme_a_SOURCES += src/plan/report.c src/plan/report.h
