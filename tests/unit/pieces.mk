# Units divided among ranks: divided.c is what tests on one rank and on several share.
UNIT_TESTS += tests/unit/test_pieces
divided = tests/unit/divided.c tests/unit/divided.h $(rig)
tests_unit_test_pieces_SOURCES = tests/unit/test_pieces.c $(divided)
# Positions and documents that data gives.
UNIT_TESTS += tests/unit/test_places
tests_unit_test_places_SOURCES = tests/unit/test_places.c $(rig)
