// What pgJDBC gets of a gateway; the port is the argument.
import java.math.BigDecimal;
import java.sql.*;

public class Jdbc {
    public static void main(String[] arguments) throws Exception {
        String url = "jdbc:postgresql://127.0.0.1:" + arguments[0] + "/millstream?user=admin&sslmode=disable";
        try (Connection connection = DriverManager.getConnection(url)) {
            DatabaseMetaData meta = connection.getMetaData();
            System.out.println("product " + meta.getDatabaseProductName());
            try (ResultSet r = meta.getTables(null, "public", "%", new String[] {"TABLE"})) {
                while (r.next()) System.out.println("table " + r.getString("TABLE_NAME") + " " + r.getString("REMARKS"));
            }
            try (ResultSet r = meta.getColumns(null, null, "prices", "%")) {
                while (r.next()) System.out.println("column " + r.getString("COLUMN_NAME") + " " + r.getString("TYPE_NAME"));
            }
            try (ResultSet r = meta.getPrimaryKeys(null, null, "prices")) {
                while (r.next()) System.out.println("key " + r.getString("COLUMN_NAME"));
            }
            try (PreparedStatement p = connection.prepareStatement("INSERT INTO prices (item, price, ts, d) VALUES (?, ?, ?, ?)")) {
                p.setString(1, "jdbc");
                p.setInt(2, -7);
                p.setTimestamp(3, Timestamp.valueOf("2024-01-01 00:00:00"));
                p.setBigDecimal(4, new BigDecimal("1.50"));
                System.out.println("inserted " + p.executeUpdate());
            }
            try (PreparedStatement p = connection.prepareStatement("SELECT item, price, d FROM prices WHERE item = ?")) {
                String told = "";
                for (int i = 0; i < 7; i++) { // from the fifth time on the driver asks for binary results
                    p.setString(1, "jdbc");
                    try (ResultSet r = p.executeQuery()) {
                        while (r.next()) told = r.getString(1) + " " + r.getInt(2) + " " + r.getBigDecimal(3);
                    }
                }
                System.out.println(told);
            }
            connection.setAutoCommit(false);
            try (Statement s = connection.createStatement()) {
                s.setFetchSize(2);
                int rows = 0;
                try (ResultSet r = s.executeQuery("SELECT item FROM prices")) {
                    while (r.next()) rows++;
                }
                System.out.println("fetched " + rows);
            }
            connection.commit();
        }
    }
}
