/* keys.c - prints the section on keys of trireme-config(5); runs on the building machine. */
#include <stdio.h>

#include "config/config.h"

int main(void)
{
    config_show(stdout, CONFIG_MAN, NULL);
    return fflush(stdout) || ferror(stdout);
}
