/* Stands before the C library in a server's process: while the file that FAILING_SYNC names is there, nothing can be forced to disk. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static int fails(void) {
    const char *sign = getenv("FAILING_SYNC");
    return sign != NULL && access(sign, F_OK) == 0;
}

int fsync(int file) {
    if (fails()) { errno = EIO; return -1; }
    return (int)syscall(SYS_fsync, file);
}

int fdatasync(int file) {
    if (fails()) { errno = EIO; return -1; }
    return (int)syscall(SYS_fdatasync, file);
}
