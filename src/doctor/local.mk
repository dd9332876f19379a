trireme_SOURCES += src/doctor/doctor.c src/doctor/doctor.h src/doctor/doctor_gpu.c \
	src/doctor/doctor_report.c src/doctor/doctor_report.h src/doctor/doctor_self_check.c \
	src/doctor/doctor_speed.c
trireme_SOURCES += src/doctor/measure.c src/doctor/measure.h src/doctor/measure_beside.c \
	src/doctor/measure_copies.c src/doctor/measure_disk.c src/doctor/measure_file.h src/doctor/measure_files.c src/doctor/measure_kernels.c \
	src/doctor/measure_products.c src/doctor/measure_show.c src/doctor/measure_transfers.c \
	src/doctor/measure_units.c src/doctor/measure_work.c src/doctor/measure_work.h
