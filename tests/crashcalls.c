/* Logs what a process does to the files of one folder, for tests/crashcalls.py; loaded before the C library.

   Each entry: kind 1, inode 8, offset 8, length 4, then the data or the name; little-endian, written with one call.
   CRASH_LOG names the log, CRASH_FOLDER the folder.  What is mapped into memory is not seen. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static int log_fd = -1;
static const char *folder;

#define REAL(type, name) static type (*real_##name)(); if (!real_##name) *(void **)&real_##name = dlsym(RTLD_NEXT, #name)

static void prepare(void) {
    if (folder) return;
    REAL(int, open64);
    log_fd = real_open64(getenv("CRASH_LOG"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    folder = getenv("CRASH_FOLDER");
}

static void put(char kind, uint64_t inode, uint64_t offset, const void *data, uint32_t length) {
    REAL(ssize_t, write);
    char *entry = malloc(21 + length);
    entry[0] = kind;
    memcpy(entry + 1, &inode, 8);
    memcpy(entry + 9, &offset, 8);
    memcpy(entry + 17, &length, 4);
    memcpy(entry + 21, data, length);
    real_write(log_fd, entry, 21 + length);
    free(entry);
}

/* The inode of a file of the folder; 1 = the folder itself; 0 = another file. */
static uint64_t ours(int fd) {
    char link[64], path[PATH_MAX];
    prepare();
    if (fd == log_fd || fd < 3) return 0;
    strcpy(link, "/proc/self/fd/");
    int n = fd, at = 14, digits = 1;
    for (int rest = fd; rest >= 10; rest /= 10) digits++;
    for (int i = digits - 1; i >= 0; i--, n /= 10) link[at + i] = '0' + n % 10;
    link[at + digits] = 0;
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    size_t start = strlen(folder);
    if (strncmp(path, folder, start)) return 0;
    if (!path[start]) return 1;
    struct stat status;
    return path[start] == '/' && !fstat(fd, &status) && S_ISREG(status.st_mode) ? status.st_ino : 0;
}

static const char *name_of(const char *path) {
    prepare();
    size_t start = strlen(folder);
    return !strncmp(path, folder, start) && path[start] == '/' ? path + start + 1 : NULL;
}

static int opened(const char *path, int flags, int fd, int existed) {
    const char *name = name_of(path);
    uint64_t inode = fd >= 0 && name ? ours(fd) : 0;
    if (inode > 1 && !existed) put('c', inode, 0, name, strlen(name));
    if (inode > 1 && existed && flags & O_TRUNC) put('t', inode, 0, "", 0);
    return fd;
}

#define OPEN(symbol)                                                                  \
    int symbol(const char *path, int flags, ...) {                                    \
        REAL(int, symbol);                                                            \
        va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
        if (!name_of(path)) return real_##symbol(path, flags, mode);                  \
        pthread_mutex_lock(&guard);                                                   \
        int existed = !access(path, F_OK);                                            \
        int fd = opened(path, flags, real_##symbol(path, flags, mode), existed);      \
        pthread_mutex_unlock(&guard);                                                 \
        return fd;                                                                    \
    }
OPEN(open)
OPEN(open64)

#define PWRITE(symbol, type)                                                          \
    ssize_t symbol(int fd, const void *data, size_t size, type offset) {              \
        REAL(ssize_t, symbol);                                                        \
        pthread_mutex_lock(&guard);                                                   \
        ssize_t done = real_##symbol(fd, data, size, offset);                         \
        uint64_t inode = ours(fd);                                                    \
        if (done > 0 && inode) put('w', inode, offset, data, done);                   \
        pthread_mutex_unlock(&guard);                                                 \
        return done;                                                                  \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, write);
    if (fd < 3) return real_write(fd, data, size);
    pthread_mutex_lock(&guard);
    uint64_t inode = ours(fd);
    int appends = inode && fcntl(fd, F_GETFL) & O_APPEND;
    off_t at = inode ? lseek(fd, 0, appends ? SEEK_END : SEEK_CUR) : 0;
    ssize_t done = real_write(fd, data, size);
    if (done > 0 && inode) put('w', inode, at, data, done);
    pthread_mutex_unlock(&guard);
    return done;
}

#define TRUNCATE(symbol, type)                                                        \
    int symbol(int fd, type size) {                                                   \
        REAL(int, symbol);                                                            \
        pthread_mutex_lock(&guard);                                                   \
        int result = real_##symbol(fd, size);                                         \
        uint64_t inode = ours(fd);                                                    \
        if (!result && inode) put('t', inode, size, "", 0);                           \
        pthread_mutex_unlock(&guard);                                                 \
        return result;                                                                \
    }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

#define SYNC(symbol)                                                                  \
    int symbol(int fd) {                                                              \
        REAL(int, symbol);                                                            \
        (void)real_##symbol;                                                          \
        pthread_mutex_lock(&guard);                                                   \
        uint64_t inode = ours(fd);                                                    \
        if (inode) put('s', inode, 0, "", 0);                                         \
        pthread_mutex_unlock(&guard);                                                 \
        return 0;                                                                     \
    }
SYNC(fsync)
SYNC(fdatasync)

int unlink(const char *path) {
    REAL(int, unlink);
    pthread_mutex_lock(&guard);
    int result = real_unlink(path);
    const char *name = name_of(path);
    if (!result && name) put('u', 0, 0, name, strlen(name));
    pthread_mutex_unlock(&guard);
    return result;
}

int rename(const char *from, const char *to) {
    REAL(int, rename);
    pthread_mutex_lock(&guard);
    int result = real_rename(from, to);
    const char *old = name_of(from), *new = name_of(to);
    if (!result && old && new) {
        size_t length = strlen(old) + 1 + strlen(new);
        char *names = malloc(length + 1);
        strcpy(names, old);
        strcat(names, "/");
        strcat(names, new);
        put('r', 0, 0, names, length);
        free(names);
    }
    pthread_mutex_unlock(&guard);
    return result;
}
