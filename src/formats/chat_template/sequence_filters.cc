#include "formats/chat_template/sequence_filters.h"

#include <algorithm>
#include <utility>

#include "formats/chat_template/filters.h"
#include "formats/chat_template/operations.h"
#include "formats/chat_template/python_text.h"

namespace snug::jinja {
namespace {

// make_attrgetter: "a.b.0" is item a, of that b, of that 0.
class Getter {
 public:
  // `attribute` and `otherwise` may be null.
  Getter(const Value* attribute, bool case_sensitive, const Value* otherwise = nullptr)
      : case_sensitive_(case_sensitive),
        otherwise_(otherwise != nullptr && !otherwise->is(Kind::kNone) ? otherwise : nullptr) {
    if (attribute == nullptr || attribute->is(Kind::kNone)) return;
    if (attribute->is_integer()) {
      parts_.push_back(*attribute);
      return;
    }
    if (!attribute->is_text()) fail("an attribute is a text or a number, not {}", type_name(*attribute));
    for (const std::string_view part : split(attribute->as_text(), ".", -1, false)) {
      const bool is_number =
          !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string_view::npos;
      parts_.push_back(is_number ? Value::integer(std::stoi(std::string(part))) : attribute->part(part));
    }
  }

  Value operator()(Interpreter& run, const Value& item) const {
    Value value = item;
    for (const Value& part : parts_) {
      value = run.item(value, part);
      if (value.is_undefined() && otherwise_ != nullptr) value = *otherwise_;
    }
    if (!case_sensitive_ && value.is_text()) return run.text(lower(value.as_text()));
    return value;
  }

 private:
  std::vector<Value> parts_;
  bool case_sensitive_;
  const Value* otherwise_;
};

// Stable, as sorted() is in both directions.
std::vector<Value> sorted(Interpreter& run, std::vector<std::pair<Value, Value>> keyed, bool reverse) {
  Account& account = run.account();
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? less(account, b.first, a.first) : less(account, a.first, b.first);
  });
  std::vector<Value> items;
  items.reserve(keyed.size());
  for (auto& [key, item] : keyed) items.push_back(std::move(item));
  return items;
}

Value extreme(Interpreter& run, const Value& value, const Arguments& arguments, bool largest) {
  const Parameters given(largest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const Getter getter(given[1], given.flag(0));
  const std::vector<Value> items = iterate(run.account(), value);
  if (items.empty()) return Value::undefined("an item of an empty sequence");
  Value best = items[0], best_key = getter(run, best);
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = getter(run, items[i]);
    if (largest ? less(run.account(), best_key, key, ">") : less(run.account(), key, best_key)) {
      best = items[i];
      best_key = std::move(key);
    }
  }
  return best;
}

// select, reject, selectattr, rejectattr.
Value selected(Interpreter& run, const Value& value, const Arguments& arguments, bool wanted,
               bool by_attribute) {
  if (!truth(value)) return Value::iterator(run.account(), {});
  const size_t skip = by_attribute ? 1 : 0;
  if (by_attribute && arguments.positional.empty()) fail("Missing parameter for attribute name");
  const Getter getter(by_attribute ? &arguments.positional[0] : nullptr, true);
  Function test = nullptr;
  Arguments rest;
  if (arguments.positional.size() > skip) {
    const Value& name = arguments.positional[skip];
    if (!name.is_text()) fail("a test's name is a text, not {}", type_name(name));
    test = find_test(name.as_text());
    if (test == nullptr) fail("found the test '{}', which Snug's chat templates do not have", name.as_text());
    rest.positional.assign(arguments.positional.begin() + static_cast<ptrdiff_t>(skip) + 1,
                           arguments.positional.end());
    rest.named = arguments.named;
  }
  std::vector<Value> items;
  for (Value& item : iterate(run.account(), value)) {
    run.account().step();
    const Value looked_at = getter(run, item);
    const bool passes = test == nullptr ? truth(looked_at) : truth(test(run, looked_at, rest));
    if (passes == wanted) items.push_back(std::move(item));
  }
  return Value::iterator(run.account(), std::move(items));
}

}  // namespace

Value batch_filter(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters given("batch", arguments, {"linecount", "fill_with"});
  given.at(0);
  const int64_t count = given.integer(0, 1);
  if (count < 1) fail("batch of {} items", count);
  const bool fills = given[1] != nullptr && !given[1]->is(Kind::kNone);
  std::vector<Value> batches, batch;
  for (Value& item : iterate(run.account(), value)) {
    if (static_cast<int64_t>(batch.size()) == count)
      batches.push_back(Value::list(run.account(), std::exchange(batch, {})));
    batch.push_back(std::move(item));
  }
  if (!batch.empty()) {
    if (fills) {
      run.account().step(count);
      run.account().require_room(static_cast<size_t>(count) * sizeof(Value));
      batch.resize(static_cast<size_t>(count), *given[1]);
    }
    batches.push_back(Value::list(run.account(), std::move(batch)));
  }
  return Value::iterator(run.account(), std::move(batches));
}

Value dictsort_filter(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters given("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string_view by = given.text(1).value_or("key");
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  if (value.is_undefined()) value.fail_undefined();
  if (!value.is(Kind::kDict)) fail("'{}' object has no attribute 'items'", type_name(value));
  const Getter getter(nullptr, given.flag(0));
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, item] : value.as_dict().entries())
    keyed.emplace_back(getter(run, by == "key" ? key : item), Value::tuple(run.account(), {key, item}));
  return Value::list(run.account(), sorted(run, std::move(keyed), given.flag(2)));
}

Value first_filter(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters none("first", arguments, {});
  Value item = Value::undefined("the first item of an empty sequence");
  if (value.is(Kind::kIterator)) {
    static_cast<Iterator&>(*value.object()).next(item);
    return item;
  }
  if (value.is_text() || value.is_sequence() || value.is(Kind::kRange)) {
    find_item(run.account(), value, Value::integer(0), item);
    return item;
  }
  const std::vector<Value> items = iterate(run.account(), value);
  return items.empty() ? item : items.front();
}

Value last_filter(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters none("last", arguments, {});
  Value item = Value::undefined("the last item of an empty sequence");
  if (value.is(Kind::kIterator))
    fail("an iterator has no last item; expected a sequence (the filter list makes one)");
  if (value.is_text() || value.is_sequence() || value.is(Kind::kRange)) {
    find_item(run.account(), value, Value::integer(-1), item);
    return item;
  }
  const std::vector<Value> items = iterate(run.account(), value);
  return items.empty() ? item : items.back();
}

Value groupby_filter(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters given("groupby", arguments, {"attribute", "default", "case_sensitive"});
  given.at(0);
  const Getter by(given[0], given.flag(2), given[1]), output(given[0], true, given[1]);
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : iterate(run.account(), value)) {
    Value key = by(run, item);
    keyed.emplace_back(std::move(key), std::move(item));
  }
  const std::vector<Value> items = sorted(run, std::move(keyed), false);
  std::vector<Value> groups, group;
  const auto end_group = [&] {
    if (group.empty()) return;
    const Value name = output(run, group[0]);
    groups.push_back(
        Value::tuple(run.account(), {name, Value::list(run.account(), std::exchange(group, {}))}));
  };
  for (const Value& item : items) {
    if (!group.empty() && !equal(run.account(), by(run, group[0]), by(run, item))) end_group();
    group.push_back(item);
  }
  end_group();
  return Value::list(run.account(), std::move(groups));
}

Value items_filter(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters none("items", arguments, {});
  if (value.is_undefined()) return Value::iterator(run.account(), {});
  if (!value.is(Kind::kDict)) fail("Can only get item pairs from a mapping.");
  std::vector<Value> items;
  for (const auto& [key, item] : value.as_dict().entries())
    items.push_back(Value::tuple(run.account(), {key, item}));
  return Value::iterator(run.account(), std::move(items));
}

Value join_filter(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters given("join", arguments, {"d", "attribute"});
  const Value between = given[0] == nullptr ? Value::text("") : as_text(run.account(), *given[0]);
  const Getter getter(given[1], true);
  std::string out;
  bool first = true;
  for (const Value& item : iterate(run.account(), value)) {
    if (!std::exchange(first, false)) out += between.as_text();
    const Value text = as_text(run.account(), getter(run, item));
    run.account().require_room(out.size() + text.as_text().size() + between.as_text().size());
    out += text.as_text();
  }
  return run.text(std::move(out));
}

Value length_filter(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters none("length", arguments, {});
  if (value.is_text()) run.account().scan(value.as_text().size());
  if (value.is(Kind::kLoop)) return run.attribute(value, "length");
  return Value::integer(length(run.account(), value));
}

Value list_filter(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters none("list", arguments, {});
  return Value::list(run.account(), iterate(run.account(), value));
}

Value map_filter(Interpreter& run, const Value& value, const Arguments& arguments) {
  if (!truth(value)) return Value::iterator(run.account(), {});
  std::vector<Value> items;
  if (arguments.positional.empty()) {
    const Parameters given("map", arguments, {"attribute", "default"});
    if (given[0] == nullptr) fail("map requires a filter argument");
    const Getter getter(given[0], true, given[1]);
    for (const Value& item : iterate(run.account(), value)) items.push_back(getter(run, item));
    return Value::iterator(run.account(), std::move(items));
  }
  const Value& name = arguments.positional[0];
  if (!name.is_text()) fail("a filter's name is a text, not {}", type_name(name));
  const Function filter = find_filter(name.as_text());
  if (filter == nullptr)
    fail("found the filter '{}', which Snug's chat templates do not have", name.as_text());
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + 1, arguments.positional.end());
  rest.named = arguments.named;
  for (const Value& item : iterate(run.account(), value)) {
    run.account().step();
    items.push_back(filter(run, item, rest));
  }
  return Value::iterator(run.account(), std::move(items));
}

Value max_filter(Interpreter& run, const Value& value, const Arguments& arguments) {
  return extreme(run, value, arguments, true);
}
Value min_filter(Interpreter& run, const Value& value, const Arguments& arguments) {
  return extreme(run, value, arguments, false);
}

Value select_filter(Interpreter& run, const Value& value, const Arguments& arguments) {
  return selected(run, value, arguments, true, false);
}
Value reject_filter(Interpreter& run, const Value& value, const Arguments& arguments) {
  return selected(run, value, arguments, false, false);
}
Value selectattr_filter(Interpreter& run, const Value& value, const Arguments& arguments) {
  return selected(run, value, arguments, true, true);
}
Value rejectattr_filter(Interpreter& run, const Value& value, const Arguments& arguments) {
  return selected(run, value, arguments, false, true);
}

Value reverse_filter(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters none("reverse", arguments, {});
  if (value.is_text()) {
    const Value step = Value::integer(-1);
    return slice(run.account(), value, nullptr, nullptr, &step);
  }
  std::vector<Value> items = iterate(run.account(), value);
  std::reverse(items.begin(), items.end());
  return value.is(Kind::kIterator) ? Value::list(run.account(), std::move(items))
                                   : Value::iterator(run.account(), std::move(items));
}

Value slice_filter(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters given("slice", arguments, {"slices", "fill_with"});
  given.at(0);
  const int64_t slices = given.integer(0, 1);
  if (slices < 1) fail("slice into {} lists", slices);
  const std::vector<Value> items = iterate(run.account(), value);
  const auto size = static_cast<int64_t>(items.size());
  run.account().step(slices);
  run.account().require_room(static_cast<size_t>(slices) * sizeof(Value));
  std::vector<Value> lists;
  int64_t offset = 0;
  for (int64_t i = 0; i < slices; ++i) {
    const int64_t begin = offset + i * (size / slices);
    if (i < size % slices) ++offset;
    const int64_t end = offset + (i + 1) * (size / slices);
    std::vector<Value> part(items.begin() + begin, items.begin() + end);
    if (given[1] != nullptr && !given[1]->is(Kind::kNone) && i >= size % slices) part.push_back(*given[1]);
    lists.push_back(Value::list(run.account(), std::move(part)));
  }
  return Value::iterator(run.account(), std::move(lists));
}

Value sort_filter(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters given("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  // "a,b" sorts by a, then by b.
  std::vector<Value> attributes;
  if (given[2] != nullptr && given[2]->is_text())
    for (const std::string_view part : split(given[2]->as_text(), ",", -1, false))
      attributes.push_back(given[2]->part(part));
  else
    attributes.push_back(given[2] != nullptr ? *given[2] : Value::none());
  std::vector<Getter> getters;
  for (const Value& attribute : attributes) getters.emplace_back(&attribute, given.flag(1));
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : iterate(run.account(), value)) {
    std::vector<Value> key;
    for (const Getter& getter : getters) key.push_back(getter(run, item));
    keyed.emplace_back(Value::list(run.account(), std::move(key)), std::move(item));
  }
  return Value::list(run.account(), sorted(run, std::move(keyed), given.flag(0)));
}

Value sum_filter(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters given("sum", arguments, {"attribute", "start"});
  const Getter getter(given[0], true);
  Value sum = given[1] != nullptr ? *given[1] : Value::integer(0);
  if (sum.is_text()) fail("sum() can't sum strings");
  for (const Value& item : iterate(run.account(), value))
    sum = arithmetic(run.account(), ExprKind::kAdd, sum, getter(run, item));
  return sum;
}

Value unique_filter(Interpreter& run, const Value& value, const Arguments& arguments) {
  const Parameters given("unique", arguments, {"case_sensitive", "attribute"});
  const Getter getter(given[1], given.flag(0));
  const std::vector<Value> items = iterate(run.account(), value);
  // The dict gives every key the place of its last item; the first item with a key claims it.
  std::vector<Dict::Entry> entries;
  std::vector<Value> keys;
  for (size_t i = 0; i < items.size(); ++i) {
    keys.push_back(getter(run, items[i]));
    entries.emplace_back(keys.back(), Value::integer(static_cast<int64_t>(i)));
  }
  const auto places = make<Dict>(run.account(), std::move(entries));
  std::vector<bool> claimed(items.size());
  std::vector<Value> unique;
  for (size_t i = 0; i < items.size(); ++i) {
    const auto place = static_cast<size_t>(places->find(keys[i])->as_integer());
    if (!claimed[place]) unique.push_back(items[i]);
    claimed[place] = true;
  }
  return Value::iterator(run.account(), std::move(unique));
}

}  // namespace snug::jinja
