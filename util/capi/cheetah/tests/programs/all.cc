// A program for Cheetah in C++98 that uses the whole header; every context checks its results.

#include <stdlib.h>

#include <iostream>
#include <string>
#include <vector>

#include "Cheetah/Cheetah.h"

#ifdef WITH_STD
#include "Cheetah/Std.h"
#else
// As in POOMA, the program defines its own Serialize.
namespace Cheetah {
template <> class Serialize<CHEETAH, std::string> {
public:
    static int size(const std::string &text) { return Serialize<ARRAY, char>::size(0, int(text.size())); }
    static int pack(const std::string &text, char *buffer)
    {
        return Serialize<ARRAY, char>::pack(text.data(), buffer, int(text.size()));
    }
    static int unpack(std::string *&text, char *buffer)
    {
        char *first;
        int len;
        int used = Serialize<ARRAY, char>::unpack(first, buffer, len);
        text = new std::string(first, size_t(len));
        return used;
    }
    static void cleanup(std::string *text) { delete text; }
};
} // namespace Cheetah
#endif

static Cheetah::Controller *controller_g = 0;

static void check(bool is_so, const char *condition, int line)
{
    if (!is_so) {
        std::cerr << "line " << line << ": " << condition << std::endl;
        exit(1);
    }
}
#define CHECK(condition) check((condition), #condition, __LINE__)

// Invocations.

static int received = 0;

static void receive(int who, int tag, void *buf, int len)
{
    CHECK(tag == 0);
    CHECK(len == 100000 || len == int(sizeof(int)));
    CHECK(*static_cast<int *>(buf) == who);
    ++received;
}

static int typed = 0;

static void receiveValues(int who, int &number, double &value, std::string &text)
{
    CHECK(number == who);
    CHECK(value == who + 0.5);
    CHECK(text == "three values");
    ++typed;
}

struct Address {
    char *bytes;
    int *bell;
};

static std::vector<Address> addresses;
static int reported = 0;

static void report(int who, Address &address)
{
    addresses[size_t(who)] = address;
    ++reported;
}

static void invocations(Cheetah::Controller &c)
{
    int me = c.mycontext(), all = c.ncontexts();
    int id = c.registerFunction(receive);
    CHECK(id == 0);
    Cheetah::Function3<int, double, std::string> values = c.registerFunction(receiveValues);
    Cheetah::Function1<Address> address = c.registerFunction(report);
    CHECK(values.id == 1 && address.id == 2);
    addresses.resize(size_t(all));
    c.barrier();
    std::vector<int> large(25000, me);
    int done = 0;
    for (int to = 0; to < all; ++to) {
        c.ainvoke(to, id, &me, int(sizeof me));
        c.ainvoke(to, id, &large[0], 100000, &done);
        c.ainvoke(to, values, me, me + 0.5, std::string("three values"));
    }
    c.wait(&done, all);
    while (received < 2 * all || typed < all)
        c.poll();
    c.barrier();

    // Puts and gets, with bells that are any integers.
    static char room[5000];
    static int bell = 0;
    Address mine = {room, &bell};
    for (int to = 0; to < all; ++to)
        c.ainvoke(to, address, mine);
    while (reported < all)
        c.poll();
    int next = (me + 1) % all, before = (me + all - 1) % all;
    std::vector<char> source(5000, char(me + 1)), back(5000, 0);
    int local = -10;
    c.put(next, addresses[size_t(next)].bytes, &source[0], 5000, &local, addresses[size_t(next)].bell);
    c.wait(&bell, 1);
    c.wait(&local, -9);
    CHECK(room[0] == char(before + 1) && room[4999] == char(before + 1));
    c.get(next, addresses[size_t(next)].bytes, &back[0], 5000, &local, addresses[size_t(next)].bell);
    c.wait(&local, -8);
    CHECK(back == source);
    c.wait(&bell, 2);
    c.put(next, addresses[size_t(next)].bytes, &source[0], 8, 0, 0);
    c.barrier();

    // The same with special memory.
    char *special = static_cast<char *>(c.allocate(8192));
    reported = 0;
    c.barrier();
    Address there = {special, &bell};
    for (int to = 0; to < all; ++to)
        c.ainvoke(to, address, there);
    while (reported < all)
        c.poll();
    c.barrier();
    bell = 0;
    c.barrier();
    for (int i = 0; i < 10; ++i)
        c.put(next, addresses[size_t(next)].bytes + 8 * i, &source[0], 8, 0, addresses[size_t(next)].bell);
    c.wait(&bell, 10);
    CHECK(special[0] == char(before + 1) && special[79] == char(before + 1) && special[80] == 0);
    c.barrier();
    c.free(special);
}

// Matching handlers.

struct View {
    explicit View(double *start) : first(start) {}
    double *first;
};

static void take(double *into, double &value) { *into = value; }
static void takeView(const View &into, std::string &text) { into.first[0] = double(text.size()); }
static int plain = 0;
static void takeOne(int &value) { plain += value; }
static void takeTwo(int one, const double &two) { plain += one + int(two); }
static void takeThree(int &one, int &two, int &three) { plain += one + two + three; }
static void takeNone() { ++plain; }
static void takeNoneWith(int *count) { ++*count; }
static double sum = 0;
static void takeArray(double *values, int &count)
{
    for (int i = 0; i < count; ++i)
        sum += values[i];
}

static void matching(Cheetah::Controller &c)
{
    int me = c.mycontext(), all = c.ncontexts();
    int next = (me + 1) % all, before = (me + all - 1) % all;
    Cheetah::MatchingHandler *one = new Cheetah::MatchingHandler(c);
    Cheetah::MatchingHandler other;
    other.controller(c);
    double value = 0, size = 0;
    other.send(next, 1, 1.5 + me);
    one->request(before, 1, take, &value);
    one->send(next, 1, 2.5 + me);
    while (value == 0)
        c.poll();
    CHECK(value == 2.5 + before);
    value = 0;
    other.request(before, 1, take, &value);
    while (value == 0)
        c.poll();
    CHECK(value == 1.5 + before);

    one->send(next, 2, std::string(10000, 'x'));
    one->request(before, 2, takeView, View(&size));
    while (size == 0)
        c.poll();
    CHECK(size == 10000);

    int count = 0;
    one->send(next, 3, 7);
    one->send(next, 4, 1, 2.0);
    one->send(next, 5, 1, 2, 3);
    one->send(next, 6);
    one->send(next, 6);
    one->request(before, 3, takeOne);
    one->request(before, 4, takeTwo);
    one->request(before, 5, takeThree);
    one->request(before, 6, takeNone);
    one->request(before, 6, takeNoneWith, &count);
    while (plain < 17 || count < 1)
        c.poll();
    CHECK(plain == 17 && count == 1);

    std::vector<double> many(1000, 0.5);
    const int len = 1000;
    one->sendWith(Cheetah::ARRAY(), next, 7, &many[0], len);
    one->requestWith(Cheetah::ARRAY(), before, 7, takeArray);
    while (sum == 0)
        c.poll();
    CHECK(sum == 500);
    value = 0;
    one->sendWith(Cheetah::CHEETAH(), next, 8, 4.5);
    one->requestWith(Cheetah::CHEETAH(), before, 8, take, &value);
    one->request(before, 99, takeOne);
    while (value != 4.5)
        c.poll();
    CHECK(one->actions() == 1 && one->actions(before) == 1 && one->messages() == 0);
    c.barrier();
    delete one;
}

// Copies are one controller.
static void copies(const Cheetah::Controller &c)
{
    Cheetah::Controller none;
    CHECK(!none.isValid() && c.isValid());
    Cheetah::Controller copy(c);
    none = copy;
    CHECK(none.isValid() && none.mycontext() == c.mycontext());
    none = none;
    none = Cheetah::Controller();
    CHECK(!none.isValid());
}

int main(int argc, char **argv)
{
    std::cout << "before ";
    controller_g = new Cheetah::Controller(argc, argv);
    CHECK(argc == 2 && std::string(argv[1]) == "own" && argv[2] == 0);
    copies(*controller_g);
    invocations(*controller_g);
    matching(*controller_g);
    controller_g->barrierBegin();
    while (!controller_g->barrierDone()) {
    }
    std::cout << "context ends well\n";
    delete controller_g;
    return 0;
}
