/* machine_text.h - the text of machines.yaml, which make puts into machine_text.c. */
#ifndef TRIREME_SIMULATE_MACHINE_TEXT_H
#define TRIREME_SIMULATE_MACHINE_TEXT_H

extern const char machine_text[];

#endif
