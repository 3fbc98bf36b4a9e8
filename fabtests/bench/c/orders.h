/*
 * The orders of src/pair/order.rs, which a contestant reads as lines of JSON from its standard
 * input, a socket, and replies to there. A contestant includes this file after its loops: pingpong,
 * bandwidth and remote.
 */

static void run_bench(const char *line)
{
	struct order *order = &run.order;
	char bench[32], wants_inject[8];
	int read = sscanf(line,
			  "{\"bench\":{\"bench\":\"%31[^\"]\",\"size\":%zu,\"counts\":{\"warmup\":%zu,"
			  "\"batch\":%zu,\"singles\":%zu},\"window\":%zu,\"inject\":%7[a-z]",
			  bench, &order->size, &order->warmup, &order->batch, &order->singles,
			  &order->window, wants_inject);
	if (read != 7)
		fail_with("order", "cannot parse the benchmark");
	size_t limit = strcmp(wants_inject, "true") ? 0 : inject_limit();
	order->tagged = !strncmp(bench, "tagged", 6);
	order->pingpong = strstr(bench, "pingpong") != NULL;
	order->inject = order->size <= limit;
	bool one_sided = !strncmp(bench, "rma", 3) || !strncmp(bench, "atomic", 6);
	struct timing timing = one_sided	 ? remote(bench)
			       : order->pingpong ? pingpong()
						 : bandwidth(ACK <= limit, strstr(bench, "bibw") != NULL);
	reply("{\"done\":{\"mean\":%.3f,\"p50\":%.3f,\"p99\":%.3f,\"min\":%.3f}}\n", timing.mean,
	      timing.p50, timing.p99, timing.min);
}

static void set_peer(const char *line)
{
	char text[4096];
	if (sscanf(line, "{\"peer\":\"%4095[^\"]", text) != 1)
		fail_with("order", "cannot parse the address of the peer");
	set_peer_address(text);
	reply("{\"done\":null}\n");
}

static void run_order(const char *line)
{
	size_t largest, window;
	const char *numbers = strstr(line, "\"largest\"");
	if (!strncmp(line, "{\"bench\"", 8))
		run_bench(line);
	else if (!strncmp(line, "{\"peer\"", 7))
		set_peer(line);
	else if (!strncmp(line, "{\"open\"", 7) && numbers &&
		 sscanf(numbers, "\"largest\":%zu,\"window\":%zu", &largest, &window) == 2)
		open_endpoint(largest, window, strstr(line, "\"remote\":true") != NULL);
	else if (!strncmp(line, "\"ready\"", 7))
		reply("{\"done\":null}\n");
	else
		fail_with("order", "cannot parse it");
}

static void pin(int core)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(core, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		fail_with("sched_setaffinity", strerror(errno));
}

/* Makes the socket with this path the standard input. */
static bool connect_control(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int control = socket(AF_UNIX, SOCK_STREAM, 0);
	strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
	return control >= 0 && !connect(control, (struct sockaddr *)&address, sizeof(address)) &&
	       dup2(control, STDIN_FILENO) == STDIN_FILENO && !close(control);
}

/*
 * Arguments: side, core or -1, parent, 1 to yield while waiting. A process that a launcher has
 * started gets the path of its control socket instead of the parent, and exits when the socket is
 * closed.
 */
int main(int argc, char **argv)
{
	if (argc != 5)
		return 2;
	bool launched = strchr(argv[3], '/') != NULL;
	if (launched && !connect_control(argv[3]))
		return 1;
	active = !strcmp(argv[1], "active");
	yielding = atoi(argv[4]);
	if (!launched) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != atoi(argv[3]))
			return 1;
	}
	if (atoi(argv[2]) >= 0)
		pin(atoi(argv[2]));
	calibrate();
	char line[8192];
	FILE *orders = fdopen(dup(STDIN_FILENO), "r");
	while (orders && fgets(line, sizeof(line), orders))
		run_order(line);
	return 0;
}

