libtrireme_a_SOURCES += src/segment/boundaries.c src/segment/boundaries.h src/segment/fates.c src/segment/fates.h \
	src/segment/flat.c src/segment/flat.h src/segment/fp8_matrices.c src/segment/fp8_matrices.h src/segment/optimizer.c src/segment/optimizer.h \
	src/segment/orthogonalize.c src/segment/orthogonalize.h src/segment/place.c src/segment/place.h \
	src/segment/segment.c src/segment/segment.h src/segment/segment_nodes.c src/segment/segment_row_chunks.c \
	src/segment/segment_private.h src/segment/segment_run.c src/segment/segment_touches.c \
	src/segment/stages.c src/segment/stages.h src/segment/units.c src/segment/units.h \
	src/segment/units_alike.c src/segment/units_frozen.c src/segment/units_frozen.h
