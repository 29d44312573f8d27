/* A disk whose syncs fail, for tests and for scripts/disk-full.sh:
 *
 *   cc -shared -fPIC -o failing-sync.so scripts/failing-sync.c -ldl
 *   FAILING_SYNC=DIR LD_PRELOAD=./failing-sync.so PROGRAM
 *
 * fsync and fdatasync of PROGRAM go through here. DIR/fail says which of them fail with EIO:
 *
 *   once PART     the next one of a file whose path contains PART; DIR/fail is removed then
 *   always PART   each first one of such a file, for as long as DIR/fail is there
 *
 * After a failure Linux forgets what it could not write, and the next sync of the same file succeeds. So it is
 * here: such a sync writes nothing and returns 0. DIR/log gets one line for each call, with the file's device
 * and number, which no other file gets if DIR is on the same file system:
 *
 *   synced | failed | repeated   DEVICE:NUMBER   PATH
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FAILED_MAX 1024

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { dev_t device; ino_t number; } failed[FAILED_MAX];
static int count;

/* Opens a file in the directory that the environment names. */
static int open_in(const char *name, int flags) {
    const char *dir = getenv("FAILING_SYNC");
    char path[4096];
    if (!dir || snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path) return -1;
    return open(path, flags | O_CLOEXEC, 0644);
}

/* Whether this sync is to fail. */
static int is_to_fail(const char *path) {
    char text[4096];
    int file = open_in("fail", O_RDONLY);
    if (file < 0) return 0;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0) return 0;
    text[length] = 0;
    text[strcspn(text, "\n")] = 0;
    char *part = strchr(text, ' ');
    if (!part) return 0;
    *part++ = 0;
    if (!strstr(path, part)) return 0;
    if (strcmp(text, "once") == 0) {
        const char *dir = getenv("FAILING_SYNC");
        snprintf(text, sizeof text, "%s/fail", dir);
        unlink(text);
    }
    return 1;
}

static void report(const char *what, const struct stat *file, const char *path) {
    char line[4352];
    int length = snprintf(line, sizeof line, "%s %lu:%lu %s\n", what, (unsigned long)file->st_dev,
                          (unsigned long)file->st_ino, path);
    int log = open_in("log", O_WRONLY | O_CREAT | O_APPEND);
    if (log < 0) return;
    if (write(log, line, length) != length) abort();
    close(log);
}

/* Gives the file another name, so that no other file gets its number. On another file system it has none. */
static void hold(const char *file, int number) {
    char name[4096];
    if (snprintf(name, sizeof name, "%s/failed-%d", getenv("FAILING_SYNC"), number) < (int)sizeof name)
        if (linkat(AT_FDCWD, file, AT_FDCWD, name, AT_SYMLINK_FOLLOW) != 0) return;
}

static int sync_with(const char *name, int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    char link[64], path[4096];
    struct stat file;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (!getenv("FAILING_SYNC") || length < 0 || fstat(fd, &file) != 0) return real(fd);
    path[length] = 0;
    pthread_mutex_lock(&lock);
    int known = 0;
    for (int i = 0; i < count; i++)
        known |= failed[i].device == file.st_dev && failed[i].number == file.st_ino;
    int fails = !known && count < FAILED_MAX && is_to_fail(path);
    if (fails) {
        failed[count].device = file.st_dev;
        failed[count++].number = file.st_ino;
        hold(link, count);
    }
    int result = known || fails ? 0 : real(fd);
    if (result == 0) report(known ? "repeated" : fails ? "failed" : "synced", &file, path);
    pthread_mutex_unlock(&lock);
    if (fails) {
        errno = EIO;
        return -1;
    }
    return result;
}

int fsync(int fd) { return sync_with("fsync", fd); }
int fdatasync(int fd) { return sync_with("fdatasync", fd); }
