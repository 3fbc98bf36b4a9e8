/* Ranks of an MPI job pass messages of several lengths around a ring, check the contents, and check
 * that the library of the named provider is loaded. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int is_loaded(const char *provider)
{
	char line[4096], name[256];
	int found = 0;
	FILE *maps = fopen("/proc/self/maps", "r");

	snprintf(name, sizeof name, "/lib%s-fi.so", provider);
	while (maps && fgets(line, sizeof line, maps))
		found = found || strstr(line, name);
	if (maps)
		fclose(maps);
	return found;
}

int main(int argc, char **argv)
{
	int rank, ranks;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc < 2 || !is_loaded(argv[1])) {
		fprintf(stderr, "the provider's library is not loaded\n");
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	for (size_t len = 1; len <= 1 << 20; len *= 32) {
		int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
		char *out = malloc(len), *in = malloc(len);

		memset(out, rank + 1, len);
		MPI_Sendrecv(out, (int)len, MPI_BYTE, next, 7, in, (int)len, MPI_BYTE, previous, 7,
			     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (size_t at = 0; at < len; at++) {
			if (in[at] != previous + 1)
				MPI_Abort(MPI_COMM_WORLD, 2);
		}
		free(out);
		free(in);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("%d ranks exchanged messages\n", ranks);
	MPI_Finalize();
	return 0;
}
