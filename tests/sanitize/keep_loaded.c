/* keep_loaded.c - libraries stay loaded to the end, so that a leak can be told by its library.
 *
 * MPI unloads its components in MPI_Finalize.  What they leaked is reported later, when the
 * addresses in its stack have no names left, and could only be excused all together.
 */
int dlclose(void *library);

int dlclose(void *library)
{
    return 0;
}
