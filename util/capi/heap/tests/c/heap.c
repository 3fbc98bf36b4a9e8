/* Programs under LD_PRELOAD=libselvedge_heap.so: one for each answer that docs/SHM.md gives. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                          \
	do {                                                                      \
		if (!(condition)) {                                               \
			fprintf(stderr, "line %d: %s\n", __LINE__, #condition);   \
			exit(1);                                                  \
		}                                                                 \
	} while (0)

#define MIB (1024 * 1024)

struct location {
	uint64_t serial, base, len;
};

struct table {
	uint64_t size;
	uint64_t (*changes)(void);
	int (*find)(uint64_t address, uint64_t len, struct location *location);
	int (*descriptor)(uint64_t serial);
	int (*is_offered)(uint64_t serial);
};

static const struct table *heap;

static int is_offered(const void *bytes, size_t len, struct location *location)
{
	return heap->find((uintptr_t)bytes, len, location);
}

/* The bytes of an arena as a peer sees them. */
static const unsigned char *map_as_peer(const struct location *location)
{
	int fd = heap->descriptor(location->serial);
	CHECK(fd >= 0);
	void *mapped = mmap(NULL, location->len, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(mapped != MAP_FAILED);
	close(fd);
	return mapped;
}

static int all_are(const unsigned char *bytes, unsigned char value, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (bytes[i] != value)
			return 0;
	return 1;
}

static int exit_code_of(pid_t pid)
{
	int status;
	CHECK(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void run_functions(void)
{
	struct location location;
	void *small = malloc(100);
	CHECK(!is_offered(small, 100, &location) && malloc_usable_size(small) >= 100);
	unsigned char *large = malloc(100000);
	CHECK(is_offered(large, 100000, &location));
	CHECK(malloc_usable_size(large) >= 100000);
	memset(large, 1, malloc_usable_size(large));
	errno = 77;
	free(large);
	CHECK(errno == 77);
	unsigned char *zeroed = calloc(1000, 100);
	CHECK(is_offered(zeroed, 100000, &location) && all_are(zeroed, 0, 100000));
	free(zeroed);
	volatile size_t huge = SIZE_MAX / 2;
	CHECK(calloc(huge, 4) == NULL && errno == ENOMEM);
	CHECK(malloc(huge) == NULL && errno == ENOMEM);
	CHECK(reallocarray(small, huge, 4) == NULL && errno == ENOMEM);
	small = realloc(small, 0x20000);
	CHECK(is_offered(small, 0x20000, &location));
	memset(small, 9, 0x20000);
	small = realloc(small, 50);
	CHECK(!is_offered(small, 50, &location) && all_are(small, 9, 50));
	free(small);
	CHECK(realloc(malloc(100000), 0) == NULL);
	for (size_t align = sizeof(void *); align <= 32 * MIB; align *= 2) {
		void *aligned[3] = {NULL, aligned_alloc(align, 200000), memalign(align, 200000)};
		CHECK(posix_memalign(&aligned[0], align, 200000) == 0);
		for (int i = 0; i < 3; i++) {
			CHECK(aligned[i] && (uintptr_t)aligned[i] % align == 0);
			CHECK(is_offered(aligned[i], 200000, &location) == (align <= 16 * MIB));
			free(aligned[i]);
		}
	}
	CHECK(posix_memalign((void **)&small, 3, 200000) == EINVAL);
	CHECK((uintptr_t)(small = valloc(200000)) % 4096 == 0);
	free(small);
	CHECK(malloc_usable_size(small = pvalloc(70001)) >= 73728);
	free(small);
	free(NULL);
	CHECK(malloc_usable_size(NULL) == 0);
}

static void run_fork(void)
{
	unsigned char *bytes = malloc(MIB);
	memset(bytes, 'a', MIB);
	struct location location, other;
	CHECK(is_offered(bytes, MIB, &location));
	size_t offset = (uintptr_t)bytes - location.base;
	const unsigned char *peer = map_as_peer(&location);
	pid_t pid = fork();
	if (pid == 0) {
		CHECK(all_are(bytes, 'a', MIB) && !is_offered(bytes, MIB, &other));
		memset(bytes, 'c', MIB);
		unsigned char *new = malloc(MIB);
		CHECK(is_offered(new, MIB, &other) && other.serial != location.serial);
		free(bytes);
		free(new);
		_exit(0);
	}
	memset(bytes, 'p', MIB);
	CHECK(exit_code_of(pid) == 0);
	CHECK(all_are(bytes, 'p', MIB));
	CHECK(all_are(peer + offset, 'a', MIB));
	CHECK(!is_offered(bytes, MIB, &other) && !heap->is_offered(location.serial));
	CHECK(heap->descriptor(location.serial) == -1);
	unsigned char *new = malloc(MIB);
	CHECK(is_offered(new, MIB, &other) && other.serial != location.serial);
	bytes = realloc(bytes, 2 * MIB);
	CHECK(all_are(bytes, 'p', MIB) && is_offered(bytes, 2 * MIB, &other));
	/* A tree of processes. */
	for (int depth = 0; depth < 4; depth++) {
		pid = fork();
		if (pid != 0)
			break;
		CHECK(all_are(bytes, (unsigned char)(depth ? 'a' + depth - 1 : 'p'), MIB));
		memset(bytes, 'a' + depth, MIB);
	}
	if (pid > 0)
		CHECK(exit_code_of(pid) == 0);
}

static void run_vfork(void)
{
	unsigned char *bytes = malloc(MIB);
	memset(bytes, 'a', MIB);
	struct location before, after;
	CHECK(is_offered(bytes, MIB, &before));
	pid_t pid = vfork();
	if (pid == 0) {
		bytes[0] = 'v';
		_exit(0);
	}
	CHECK(exit_code_of(pid) == 0 && bytes[0] == 'v');
	char *arguments[] = {"true", NULL};
	CHECK(posix_spawnp(&pid, "true", NULL, NULL, arguments, environ) == 0);
	CHECK(exit_code_of(pid) == 0);
	CHECK(system("exit 3") >> 8 == 3);
	CHECK(is_offered(bytes, MIB, &after) && after.serial == before.serial);
	CHECK(map_as_peer(&after)[(uintptr_t)bytes - after.base] == 'v');
}

static volatile int is_over;

static void *count_up(void *words)
{
	volatile uint64_t *word = words;
	for (uint64_t round = 0; !is_over; round++)
		for (size_t i = 0; i < MIB / 8; i++) {
			CHECK(word[i] == round);
			word[i] = round + 1;
		}
	return NULL;
}

static void run_threads(void)
{
	for (int round = 0; round < 10; round++) {
		pthread_t thread;
		void *words = calloc(1, MIB);
		struct location location;
		CHECK(is_offered(words, MIB, &location));
		is_over = 0;
		CHECK(pthread_create(&thread, NULL, count_up, words) == 0);
		usleep(2000);
		pid_t pid = fork();
		if (pid == 0)
			_exit(0);
		CHECK(exit_code_of(pid) == 0);
		usleep(2000);
		is_over = 1;
		CHECK(pthread_join(thread, NULL) == 0);
		CHECK(!is_offered(words, MIB, &location));
		free(words);
	}
}

static void run_realloc(void)
{
	struct location location;
	size_t len = 70000;
	unsigned char *bytes = malloc(len);
	memset(bytes, 5, len);
	for (; len < 200 * MIB; len += len / 2) {
		bytes = realloc(bytes, len + len / 2);
		CHECK(is_offered(bytes, len, &location) && all_are(bytes, 5, len));
		memset(bytes + len, 5, len / 2);
	}
	/* A large allocation grows in place, up to half of its length. */
	void *single = malloc(40 * MIB);
	CHECK(realloc(single, 50 * MIB) == single);
	CHECK(realloc(single, 41 * MIB) == single);
	/* Beyond the largest allocation of the heap, memory moves to the next allocator. */
	bytes = realloc(bytes, 400 * MIB);
	CHECK(!is_offered(bytes, MIB, &location) && all_are(bytes, 5, len));
}

static void run_advice(void)
{
	unsigned char *bytes = aligned_alloc(4096, 4 * MIB);
	memset(bytes, 7, 4 * MIB);
	/* Shared memory keeps its bytes. */
	CHECK(madvise(bytes, MIB, MADV_DONTNEED) == 0 && all_are(bytes, 7, 4 * MIB));
	CHECK(madvise(bytes, MIB, MADV_FREE) == -1 && errno == EINVAL);
	CHECK(madvise(bytes, 4 * MIB, MADV_HUGEPAGE) == 0 || errno == EINVAL);
	CHECK(madvise(bytes, 4 * MIB, MADV_WILLNEED) == 0);
	/* Locks work, and a fork ends them. */
	CHECK(mlock(bytes, 4096) == 0 && munlock(bytes, 4096) == 0);
	CHECK(mlock(bytes, 4096) == 0);
	pid_t pid = fork();
	if (pid == 0)
		_exit(!all_are(bytes, 7, 4 * MIB));
	CHECK(exit_code_of(pid) == 0);
	CHECK(munlock(bytes, 4096) == 0 && all_are(bytes, 7, 4 * MIB));
}

/* Address space that ends: allocations fail, nothing else does, and not much earlier than without
 * the heap. */
static void run_address_space(void)
{
	struct rlimit limit = {300 * MIB, 300 * MIB};
	void *before = malloc(MIB);
	memset(before, 1, MIB);
	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
	int count = 0;
	for (void *bytes; (bytes = malloc(MIB)) != NULL; count++)
		memset(bytes, 1, MIB);
	CHECK(errno == ENOMEM && count > 150);
	CHECK(all_are(before, 1, MIB));
	free(before);
}

/* The heap reserves no more than a quarter of a limited address space. FI_HEAP_LIMIT=1g */
static void run_address_quarter(void)
{
	struct rlimit limit = {700 * MIB, 700 * MIB};
	struct location location;
	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
	CHECK(is_offered(malloc(MIB), MIB, &location));
	int offered = 0, count = 1;
	for (void *bytes; (bytes = malloc(MIB)) != NULL; count++)
		offered += is_offered(bytes, MIB, &location);
	CHECK(errno == ENOMEM && offered > 50 && offered < 64);
	CHECK(count > 550);
}

/* Files have a limit, and a longer one would end the process by a signal. */
static void run_file_size(void)
{
	struct location location;
	struct rlimit limit = {MIB, MIB};
	void *before = malloc(MIB);
	CHECK(is_offered(before, MIB, &location));
	CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	unsigned char *bytes = malloc(100 * MIB);
	CHECK(bytes && !is_offered(bytes, 100 * MIB, &location));
	memset(bytes, 1, 100 * MIB);
	/* The file of the first allocation is longer than the limit, and full of pages that are not
	 * committed yet. */
	for (int i = 0; i < 10; i++)
		memset(malloc(MIB), 1, MIB);
}

/* The second mapping of a file, for a fork, does not count as data before a fork. */
static void run_data(void)
{
	struct rlimit limit = {32 * MIB, 32 * MIB};
	struct location location;
	CHECK(setrlimit(RLIMIT_DATA, &limit) == 0);
	unsigned char *bytes = malloc(8 * MIB);
	CHECK(bytes && is_offered(bytes, 8 * MIB, &location));
	memset(bytes, 'a', 8 * MIB);
	pid_t pid = fork();
	if (pid == 0) {
		int inherited = all_are(bytes, 'a', 8 * MIB);
		memset(bytes, 'c', 8 * MIB);
		_exit(!inherited);
	}
	CHECK(exit_code_of(pid) == 0 && all_are(bytes, 'a', 8 * MIB));
}

/* Memory that is kept for reuse is given back when an allocation fails. */
static void run_retained(void)
{
	struct rlimit limit = {1200 * MIB, 1200 * MIB};
	struct location location;
	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
	void *single = malloc(40 * MIB);
	CHECK(is_offered(single, 40 * MIB, &location));
	free(single);
	CHECK(heap->is_offered(location.serial));
	/* With the kept file, which is mapped twice, this would not fit. */
	void *large = malloc(1100ul * MIB);
	CHECK(large && !heap->is_offered(location.serial));
	free(large);
	CHECK(malloc(2000ul * MIB) == NULL && errno == ENOMEM);
}

/* In a control group with 128 MiB: memory that is not touched costs nothing that matters, and
 * the heap takes only a part. */
static void run_group(void)
{
	struct location location;
	int offered = 0;
	for (int i = 0; i < 1000; i++) {
		void *bytes = malloc(MIB);
		CHECK(bytes);
		offered += is_offered(bytes, MIB, &location);
	}
	CHECK(offered > 8 && offered <= 32);
	memset(malloc(60000), 1, 60000);
	for (int i = 0; i < 1000; i++)
		memset(malloc(60000), 1, 60000);
}

/* A program that locks all memory that it will have. */
static void run_lock_all(void)
{
	struct location location;
	if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
		return;
	unsigned char *bytes = malloc(MIB);
	memset(bytes, 'a', MIB);
	CHECK(is_offered(bytes, MIB, &location));
	pid_t pid = fork();
	if (pid == 0) {
		int inherited = all_are(bytes, 'a', MIB);
		memset(bytes, 'c', MIB);
		_exit(!inherited);
	}
	CHECK(exit_code_of(pid) == 0 && all_are(bytes, 'a', MIB));
	CHECK(munlockall() == 0);
}

/* All bytes that malloc_usable_size(3) counts are the program's. */
static void run_usable_size(void)
{
	unsigned char *first = malloc(70001), *second = malloc(70001);
	size_t len = malloc_usable_size(first);
	CHECK(len >= 70001 && len < 80000);
	memset(second, 2, malloc_usable_size(second));
	memset(first, 1, len);
	CHECK(all_are(second, 2, malloc_usable_size(second)));
	first = realloc(first, 300000);
	CHECK(malloc_usable_size(first) >= 300000 && all_are(first, 1, len));
	first = realloc(first, 70000);
	CHECK(malloc_usable_size(first) >= 70000 && malloc_usable_size(first) < 80000);
}

/* FI_HEAP_LIMIT=8m */
static void run_limit(void)
{
	struct location location;
	void *small = malloc(MIB), *large = malloc(16 * MIB);
	CHECK(small && is_offered(small, MIB, &location));
	CHECK(large && !is_offered(large, 16 * MIB, &location));
	int offered = 0;
	for (int i = 0; i < 20; i++) {
		void *bytes = malloc(MIB);
		memset(bytes, 1, MIB);
		offered += is_offered(bytes, MIB, &location);
	}
	CHECK(offered > 2 && offered < 8);
}

/* FI_HEAP_THRESHOLD=1m FI_HEAP_LARGEST=2m */
static void run_bounds(void)
{
	struct location location;
	CHECK(!is_offered(malloc(MIB - 1), MIB - 1, &location));
	CHECK(is_offered(malloc(MIB), MIB, &location));
	CHECK(is_offered(malloc(2 * MIB), 2 * MIB, &location));
	CHECK(!is_offered(malloc(2 * MIB + 1), 2 * MIB + 1, &location));
}

/* A program that closes all descriptors, as a daemon does, and opens files under their numbers. */
static void run_descriptors(void)
{
	struct location location, other;
	unsigned char *bytes = malloc(MIB);
	memset(bytes, 3, MIB);
	CHECK(is_offered(bytes, MIB, &location));
	for (int fd = 3; fd < 1024; fd++)
		close(fd);
	for (int fd = 3; fd < 1024; fd++)
		CHECK(dup2(2, fd) == fd);
	CHECK(heap->descriptor(location.serial) == -1);
	for (int fd = 3; fd < 1024; fd++)
		close(fd);
	pid_t pid = fork();
	if (pid == 0) {
		int inherited = all_are(bytes, 3, MIB);
		memset(bytes, 9, MIB);
		_exit(!inherited);
	}
	CHECK(exit_code_of(pid) == 0 && all_are(bytes, 3, MIB));
	unsigned char *new = malloc(40 * MIB);
	memset(new, 4, 40 * MIB);
	CHECK(is_offered(new, 40 * MIB, &other) && heap->descriptor(other.serial) >= 0);
	free(bytes);
	free(new);
}

/* Memory of which peers may map every page that the program has written. */
static void run_pages(void)
{
	struct location location;
	unsigned char *bytes = malloc(MIB);
	memset(bytes, 1, MIB);
	CHECK(is_offered(bytes, MIB, &location));
	int fd = heap->descriptor(location.serial);
	off_t start = (off_t)((uintptr_t)bytes - location.base);
	CHECK(lseek(fd, start, SEEK_HOLE) >= start + MIB);
	CHECK(ftruncate(fd, 0) == -1 && errno == EPERM);
	CHECK(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EPERM);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} all[] = {
		{"functions", run_functions}, {"fork", run_fork},
		{"vfork", run_vfork}, {"threads", run_threads},
		{"realloc", run_realloc}, {"advice", run_advice},
		{"address-space", run_address_space}, {"limit", run_limit},
		{"bounds", run_bounds}, {"descriptors", run_descriptors},
		{"pages", run_pages}, {"address-quarter", run_address_quarter},
		{"file-size", run_file_size}, {"data", run_data},
		{"retained", run_retained}, {"group", run_group},
		{"lock-all", run_lock_all}, {"usable-size", run_usable_size},
	};
	heap = dlsym(RTLD_DEFAULT, "selvedge_heap_v1");
	CHECK(argc == 2 && heap && heap->size == sizeof(*heap));
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (!strcmp(all[i].name, argv[1])) {
			all[i].run();
			return 0;
		}
	return 2;
}
