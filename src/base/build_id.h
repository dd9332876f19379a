/* build_id.h - which build this program is. */
#ifndef TRIREME_BASE_BUILD_ID_H
#define TRIREME_BASE_BUILD_ID_H

enum { BUILD_ID = 64 };

/* The build id of the program in hexadecimal, a hash of all that was linked; "" where the linker
 * put none into it.  Returns text. */
const char *build_id(char text[BUILD_ID]);

#endif
