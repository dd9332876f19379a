/* build_id.h - which build this program is. */
#ifndef TRIREME_BASE_BUILD_ID_H
#define TRIREME_BASE_BUILD_ID_H

enum { BUILD_ID = 64 };

/* Write the build id of the program, a hash of all that was linked, into text in hexadecimal; ""
 * where the linker put none into the program.  Returns text. */
const char *build_id(char text[BUILD_ID]);

#endif
