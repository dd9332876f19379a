libtrireme_a_SOURCES += \
	src/simulate/machine.c src/simulate/machine.h src/simulate/machine_disk.c \
	src/simulate/machine_fields.c src/simulate/machine_fields.h \
	src/simulate/machine_file.c src/simulate/machine_file.h src/simulate/machine_write.c \
	src/simulate/machine_quantity.c src/simulate/machine_quantity.h \
	src/simulate/machine_reader.c src/simulate/machine_reader.h src/simulate/machine_rows.c \
	src/simulate/machine_table.c src/simulate/machine_table.h src/simulate/machine_text.h \
	src/simulate/machine_transfer.c
# Machines that every build knows, as a text of the program.
nodist_libtrireme_a_SOURCES = src/simulate/machine_text.c
dist_pkgdata_DATA = src/simulate/machines.yaml
CLEANFILES += src/simulate/machine_text.c
src/simulate/machine_text.c: src/simulate/machines.yaml
	$(AM_V_GEN)$(MKDIR_P) src/simulate && { echo '#include "simulate/machine_text.h"' && \
	  echo 'const char machine_text[] =' && \
	  $(SED) -e 's/[\\"]/\\&/g' -e 's/.*/"&\\n"/' $(srcdir)/src/simulate/machines.yaml && echo ';'; } >$@
